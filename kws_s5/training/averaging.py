"""Averaged weights: the running mean of the model over the last steps, buffers (norm statistics) included.

Source: Izmailov et al., "Averaging weights leads to wider optima and better generalization", UAI 2018. Whether the
average or the best single epoch becomes the model is decided on the validation clips.
"""

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class Average:
    """Empty until the first ``update``."""

    def __init__(self) -> None:
        self._mean: AveragedModel | None = None
        self._state: dict[str, Tensor] | None = None  # loaded, but the model has not been seen yet

    def update(self, model: nn.Module) -> None:
        """Takes the current weights into the mean."""
        if self._mean is None:
            self._mean = AveragedModel(model, use_buffers=True)
            if self._state is not None:
                self._mean.load_state_dict(self._state)
                self._state = None
        self._mean.update_parameters(model)

    def state(self) -> dict[str, Tensor] | None:
        """For a checkpoint; None while empty."""
        return self._state if self._mean is None else self._mean.state_dict()

    def load(self, state: dict[str, Tensor] | None) -> None:
        """From a checkpoint."""
        self._mean, self._state = None, state

    def weights(self) -> dict[str, Tensor] | None:
        """The averaged model's state_dict, or None while empty."""
        state = self.state()
        prefix = "module."
        return None if state is None else {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
