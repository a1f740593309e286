"""Fronts that give one frame per input step: a dense layer on samples, or on one-hot tokens (the paper's encoders).

LinearFront: x_t = W (gain u_t) + b. TokenFront: x_t = W[token_t] + b, which is a dense layer on a one-hot vector.
The layers behind run at the input's rate and get its step rescale.

Legend: N batch, L steps, U input features, H features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.model import LinearFront, TokenFront
from kws_s5.errors import UserError
from kws_s5.model.dense import dense, lecun_normal_
from kws_s5.model.front import Features, State


def build(config: LinearFront | TokenFront, d_model: int, rate: float) -> nn.Module:
    """Config -> front; ``rate`` (Hz) is the frame rate at step_rescale 1."""
    if isinstance(config, LinearFront):
        return LinearEncoder(config.n_inputs, d_model, gain=config.gain, frame_rate=rate)
    if config.vocab_size < 1:
        raise UserError("front.vocab_size = 0: set it, or let the data set it")
    return TokenEncoder(config.vocab_size, d_model, frame_rate=rate)


class LinearEncoder(nn.Module):
    """(N, L, U) -> (N, L, H)."""

    fixed_frame_rate = False

    def __init__(self, U: int, H: int, *, gain: float = 1.0, frame_rate: float = 0.0) -> None:
        super().__init__()
        self.gain, self.frame_rate = gain, frame_rate
        self.encoder = dense(U, H)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, *, dt: Tensor | None = None
    ) -> Features:
        """x (N, L, U) -> Features of (N, L, H); everything else is passed on."""
        return Features(self._encode(x), lengths, step_rescale, dt)

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """Nothing to remember."""
        return {}

    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """chunk (N, l, U) -> (N, l, H)."""
        return self._encode(chunk), state

    def _encode(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # sound in 16 bits of bfloat would be hiss
            return F.linear(x, self.encoder.weight * self.gain, self.encoder.bias)  # gain on the small factor


class TokenEncoder(nn.Module):
    """(N, L) int64 -> (N, L, H). Token 0 is an ordinary symbol here: padding is told by the lengths."""

    fixed_frame_rate = False

    def __init__(self, vocab_size: int, H: int, *, frame_rate: float = 0.0) -> None:
        super().__init__()
        self.frame_rate = frame_rate
        self.weight = nn.Parameter(torch.empty(vocab_size, H))
        self.bias = nn.Parameter(torch.zeros(H))
        lecun_normal_(self.weight, vocab_size)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, *, dt: Tensor | None = None
    ) -> Features:
        """x (N, L) token ids in [0, vocab_size) -> Features of (N, L, H); everything else is passed on."""
        return Features(self._encode(x), lengths, step_rescale, dt)

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """Nothing to remember."""
        return {}

    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """chunk (N, l) -> (N, l, H)."""
        return self._encode(chunk), state

    def _encode(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.weight + self.bias)  # (N, L, H): the bias is added to the table, not to every step
