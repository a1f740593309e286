"""The whole model: front -> layers -> head, on whole clips and in a stream.

    logits = model(x, lengths, step_rescale=train_rate / rate)
    state = model.initial_state(N, step_rescale)
    frame_logits, state = model.stream(chunk, state)        # equals model.frame_logits(x), however x is cut

Legend: N batch, L input steps, L' frames, l samples of a chunk, f frames of a chunk, U inputs, H features, K outputs.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from kws_s5.config.model import ModelConfig
from kws_s5.errors import UserError
from kws_s5.model.front import Features, State, build_front
from kws_s5.model.heads import ClassHead, build_head
from kws_s5.model.layer import S5Layer


class SequenceModel(nn.Module):
    """A model built from its config alone."""

    def __init__(self, config: ModelConfig) -> None:
        """Raises UserError when the config leaves open what only data can say (n_outputs, vocab_size)."""
        super().__init__()
        if config.n_outputs < 1:
            raise UserError("model.n_outputs = 0: set it, or let the data set it")
        self.config = config
        self.front = build_front(config.front, config.d_model, config.rate)
        self.layers = nn.ModuleList(_build_layer(config) for _ in range(config.n_layers))
        self.head = build_head(config.head, config.d_model, config.n_outputs, self.front.frame_rate)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Whole clips -> what the head gives: logits (N, K), or (mean, variance) of (N, L, K) each.

        Args:
            x: (N, L, U) float32, or (N, L) int64 tokens; 2N rows for pairs.
            lengths: (N,) valid steps; None: every row is full. Padding never changes an output.
            step_rescale: train_rate / rate, a number or one for each clip (N,).
            dt: (N, L) step multipliers of irregular sampling, or None.
        Lengths and step_rescale may stay on the CPU: full rows and equal rates are then seen and take the faster path.
        """
        features = self.features(x, lengths, step_rescale=step_rescale, dt=dt)
        return self.head(features.x, features.lengths)

    def features(
        self, x: Tensor, lengths: Tensor | None = None, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> Features:
        """Arguments as ``forward`` -> Features (N, L', H) behind the last layer, with the lengths in frames."""
        return self.body(self.encode(x, lengths, step_rescale=step_rescale, dt=dt))

    def encode(
        self, x: Tensor, lengths: Tensor | None = None, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> Features:
        """Arguments as ``forward`` -> Features (N, L', H) between front and layers (the place to mask frames)."""
        lengths = _none_if_full(lengths, x)
        return self.front(x, lengths, _number_if_equal(step_rescale, x), dt=dt)

    def body(self, features: Features) -> Features:
        """Features through the layers."""
        x, lengths = _full_precision(features.x), features.lengths
        for layer in self.layers:
            x = layer(x, lengths=lengths, step_rescale=features.step_rescale, dt=features.dt)
        return replace(features, x=x)

    def frame_logits(
        self, x: Tensor, lengths: Tensor | None = None, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> Tensor:
        """Arguments as ``forward`` -> logits (N, L', K) at every frame, from the last head.window seconds before it."""
        return self.clip_and_frame_logits(x, lengths, step_rescale=step_rescale, dt=dt)[1]

    def clip_and_frame_logits(
        self, x: Tensor, lengths: Tensor | None = None, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both decisions of one pass, for training them together.

        Arguments as ``forward``. Returns: clip logits (N, K), frame logits (N, L', K) and the valid frames (N,) of each
        row. Raises UserError without head.frame_logits.
        """
        self._require_frame_logits()
        features = self.features(x, lengths, step_rescale=step_rescale, dt=dt)
        clip = self.head(features.x, features.lengths)
        frames = self.head.frames(features.x, step_rescale=features.step_rescale)
        N, L = features.x.shape[:2]
        valid = features.x.new_full((N,), L, dtype=torch.int64) if features.lengths is None else features.lengths
        return clip, frames, valid

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """State of N streams before their first sample: named tensors, constant in size, ready for safetensors.

        ``step_rescale`` = train_rate / rate, a number or (N,). Raises UserError for models that cannot stream.
        """
        self._require_streamable()
        rescale = torch.as_tensor(step_rescale, dtype=torch.float64, device="cpu")
        behind = torch.ones((), dtype=torch.float64) if self.front.fixed_frame_rate else rescale
        state = {"step_rescale": behind}
        state |= {f"front.{k}": v for k, v in self.front.initial_state(N, step_rescale).items()}
        state |= {f"layers.{i}": layer.seq.initial_state(N) for i, layer in enumerate(self.layers)}
        state |= {f"head.{k}": v for k, v in self.head.initial_state(N, behind).items()}
        return state

    @torch.no_grad()
    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """The next samples of N streams -> logits of the frames they complete, and the next state.

        Any chunking gives the logits of ``frame_logits`` on the whole recording. In evaluation mode only.

        Args:
            chunk: (N, l, U) float32 (tokens: (N, l)), any l >= 0.
            state: from ``initial_state`` or the last call; it is left as it was, so a stream can be forked.
        Returns:
            logits (N, f, K), f >= 0, and the next state.
        """
        rescale = state["step_rescale"]
        step_rescale = rescale if rescale.ndim else float(rescale)
        frames, front = self.front.stream(chunk, substate(state, "front."))
        x, following = _full_precision(frames), {f"front.{k}": v for k, v in front.items()}
        if not x.shape[1]:
            return x.new_zeros((len(x), 0, self.config.n_outputs)), {**state, **following}
        for i, layer in enumerate(self.layers):
            x, following[f"layers.{i}"] = layer.stream(x, state[f"layers.{i}"], step_rescale=step_rescale)
        logits, head = self.head.stream(x, substate(state, "head."))
        following |= {f"head.{k}": v for k, v in head.items()}
        return logits, {**state, **following}

    def whole_clips(self) -> str:
        """Why the layers need whole clips ("bidirectional"); empty: they can carry a state on."""
        return next((layer.seq.whole_clips for layer in self.layers if layer.seq.whole_clips), "")

    def _require_streamable(self) -> None:
        if reason := self.whole_clips():
            raise UserError(
                f"model.mixer ({reason}): this model needs the end of a clip before it can answer; "
                "stream a model whose mixer does not"
            )
        self._require_frame_logits()

    def _require_frame_logits(self) -> None:
        if not (isinstance(self.head, ClassHead) and self.head.window > 0):
            raise UserError(
                "head.frame_logits = False: this model decides on whole clips only; "
                "use ClassHead with frame_logits = True"
            )


def build_model(config: ModelConfig) -> SequenceModel:
    """Config -> model with fresh weights (torch's global generator)."""
    return SequenceModel(config)


def _build_layer(config: ModelConfig) -> S5Layer:
    return S5Layer(
        config.d_model,
        config.mixer,
        activation=config.activation,
        dropout=config.dropout,
        norm=config.norm,
        prenorm=config.prenorm,
        ssm_norm=config.ssm_norm,
        norm_momentum=config.norm_momentum,
    )


def _none_if_full(lengths: Tensor | None, x: Tensor) -> Tensor | None:
    """Lengths on x's device; None when they are known (on the CPU) to fill every row."""
    if lengths is None or (lengths.device.type == "cpu" and bool((lengths >= x.shape[1]).all())):
        return None
    return lengths.to(x.device)


def _number_if_equal(step_rescale: float | Tensor, x: Tensor) -> float | Tensor:
    """One number when all clips are known (on the CPU) to have the same rate, else (N,) on x's device."""
    if not isinstance(step_rescale, Tensor):
        return float(step_rescale)
    if step_rescale.ndim == 0 or (step_rescale.device.type == "cpu" and bool((step_rescale == step_rescale[0]).all())):
        return float(step_rescale.flatten()[0])
    return step_rescale.to(x.device)


def _full_precision(x: Tensor) -> Tensor:
    """The residual stream stays float32 (or float64) under autocast."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def substate(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
