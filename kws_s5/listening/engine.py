"""What a session asks of whatever runs its model: torch (torch_engine.py) or onnxruntime (onnx_engine.py)."""

from typing import Any, Protocol

import numpy as np

State = dict[str, Any]  # tensors or arrays by name, of constant size
TOLERANCE = 1e-6  # samples: an edge this close to a sample's is meant to be there


class Engine(Protocol):
    """What runs the model. States are named arrays of constant size; ``run`` may write into its argument."""

    step: float  # samples from frame to frame; need not be whole
    remark: str  # what users should know about the way this model listens

    def initial_state(self) -> State: ...

    def run(self, x: np.ndarray, state: State, start: int) -> tuple[np.ndarray, State]:
        """The next samples x (N, l), l >= 1, of which ``start`` went before -> logits (N, f, K) and the next state."""

    def stored(self, value: np.ndarray, /) -> Any:
        """An array in the kind that this engine's states are made of."""


def frames_after(n_samples: int, step: float) -> int:
    """Frames that are complete after so many samples."""
    return int((n_samples + TOLERANCE) / step)
