"""Front for sequences of small images: a convolutional encoder of each frame (S5 paper, appendix G: pendulum).

conv 5x5 -> relu -> pool 2 -> conv 3x3 stride 2 -> relu -> pool 2 -> dense 30 -> relu -> dense H, 12 channels.
With ``append_dt`` the interval joins the 30 features and the layers see equal steps (the paper's S5-append).

Legend: N batch, L frames, S image size, H features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.model import FrameFront
from kws_s5.errors import UserError
from kws_s5.model.dense import dense, lecun_normal_
from kws_s5.model.front import Features, State

N_CHANNELS = 12
N_HIDDEN = 30


def build(config: FrameFront, d_model: int, rate: float) -> nn.Module:
    """Config -> front; ``rate`` (frames per second, Hz) at step_rescale 1."""
    if config.image_size < 8:
        raise UserError(f"front.image_size = {config.image_size}: must be at least 8 pixels")
    return FrameEncoder(config.image_size, d_model, append_dt=config.append_dt, frame_rate=rate)


class FrameEncoder(nn.Module):
    """(N, L, S * S) grey images, row by row, in [0, 1] -> (N, L, H)."""

    fixed_frame_rate = False

    def __init__(self, S: int, H: int, *, append_dt: bool = False, frame_rate: float = 0.0) -> None:
        super().__init__()
        self.image_size, self.append_dt, self.frame_rate = S, append_dt, frame_rate
        self.conv1 = nn.Conv2d(1, N_CHANNELS, 5, padding=2)
        self.conv2 = nn.Conv2d(N_CHANNELS, N_CHANNELS, 3, stride=2, padding=1)
        side = ((S // 2 + 1) // 2) // 2
        self.dense1 = dense(N_CHANNELS * side * side, N_HIDDEN)
        self.dense2 = dense(N_HIDDEN + append_dt, H)
        for conv in (self.conv1, self.conv2):
            lecun_normal_(conv.weight, conv.weight[0].numel())
            nn.init.zeros_(conv.bias)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, *, dt: Tensor | None = None
    ) -> Features:
        """x (N, L, S * S), dt (N, L) or None -> Features of (N, L, H); dt is used up with append_dt, else passed on."""
        if self.append_dt:
            return Features(self._encode(x, dt), lengths, step_rescale)
        return Features(self._encode(x, None), lengths, step_rescale, dt)

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """Nothing to remember."""
        return {}

    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """chunk (N, l, S * S), equal intervals -> (N, l, H)."""
        return self._encode(chunk, None), state

    def _encode(self, x: Tensor, dt: Tensor | None) -> Tensor:
        N, L, _ = x.shape
        h = self._convolve(x.reshape(N * L, self.image_size, self.image_size))
        h = F.relu(self.dense1(h)).reshape(N, L, N_HIDDEN)
        if self.append_dt:
            interval = h.new_ones((N, L)) if dt is None else dt.to(h.dtype)
            h = torch.cat([h, interval[..., None]], dim=-1)  # (N, L, 31)
        return self.dense2(h)

    def _convolve(self, images: Tensor) -> Tensor:
        """Images (M, S, S) -> (M, 12 * side * side)."""
        h = F.relu(F.max_pool2d(self.conv1(images[:, None]), 2))  # pooled first: the same, at a quarter of the work
        return F.relu(F.max_pool2d(self.conv2(h), 2)).flatten(1)
