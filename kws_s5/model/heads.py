"""From features to outputs: class logits of a clip and of every frame, pairs of documents, Gaussian regression.

ClassHead: logits = W pool(x) + b, pool = mean over the valid steps (or the last one). The frame decision uses the same
W and b on the mean of the last ``window`` seconds: since the map is linear, the head projects first (v_t = W x_t) and
averages K votes instead of H features. At the end of a clip no longer than the window it equals the clip decision.
With ``frame_decoder`` the frame decision has a W and b of its own.
PairHead: Tay et al. 2020's features of two documents. GaussianHead: variance = exp(v) below 0, v + 1 above.

Legend: N batch, L steps, f steps of a chunk, H features, K outputs, W frames of the window.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.model import ClassHead as ClassHeadConfig
from kws_s5.config.model import GaussianHead as GaussianHeadConfig
from kws_s5.config.model import Head, Pooling
from kws_s5.errors import UserError
from kws_s5.model.dense import dense
from kws_s5.model.front import State
from kws_s5.model.norm import valid_steps


def build_head(config: Head, d_model: int, n_outputs: int, frame_rate: float) -> nn.Module:
    """Config -> head. ``frame_rate`` (Hz): frames per second at step_rescale 1, for the window of frame decisions."""
    if isinstance(config, ClassHeadConfig):
        if config.frame_logits and frame_rate <= 0:
            raise UserError("head.frame_logits = True: its window is in seconds, so model.rate must be set (Hz)")
        window = config.window * frame_rate if config.frame_logits else 0.0
        return ClassHead(d_model, n_outputs, pooling=config.pooling, window=window, own=config.frame_decoder)
    if isinstance(config, GaussianHeadConfig):
        return GaussianHead(d_model, n_outputs, hidden=config.hidden)
    return PairHead(d_model, n_outputs)


class ClassHead(nn.Module):
    """Features (N, L, H) -> logits (N, K) of the clip; ``frames`` -> (N, L, K) at every step."""

    def __init__(self, H: int, K: int, *, pooling: Pooling = "mean", window: float = 0.0, own: bool = False) -> None:
        """window: length of the frame decision's window in frames at step_rescale 1; 0: no frame decisions.

        own: frame decisions have a dense layer of their own.
        """
        super().__init__()
        self.pooling, self.window = pooling, window
        self.decoder = dense(H, K)
        if own:
            self.frame_decoder = dense(H, K)

    @property
    def reader(self) -> nn.Linear:
        """The dense layer of frame decisions."""
        return getattr(self, "frame_decoder", self.decoder)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x (N, L, H), lengths (N,) or None -> logits (N, K)."""
        with torch.autocast(x.device.type, enabled=False):  # decisions in full precision: they cost next to nothing
            return self.decoder(pool(x, lengths, self.pooling))

    def frames(self, x: Tensor, *, step_rescale: float | Tensor = 1.0) -> Tensor:
        """x (N, L, H) -> logits (N, L, K) that look at the past ``window`` only. Beyond a clip's end: meaningless."""
        votes, state = self._votes(x), self.initial_state(len(x), step_rescale)
        return self._average(votes, state)[0]

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """An empty window: the last W votes (the widest stream's W), their sums, and how many frames went by."""
        if self.pooling == "last":
            return {}
        like = self.decoder.weight
        state = {"seen": torch.zeros((), dtype=torch.int64, device=like.device)}
        W = self._window(step_rescale)
        if isinstance(W, Tensor):
            state["window"] = W.to(like.device)  # (N,)
            W = int(W.max())
        state["votes"] = like.new_zeros((N, W, like.shape[0]))
        state["sums"] = torch.zeros((N, like.shape[0]), dtype=_exact(like), device=like.device)
        return state

    def stream(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next f steps: x (N, f, H) -> (logits (N, f, K), next state)."""
        return self._average(self._votes(x), state)

    def _votes(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x, self.reader.weight)  # (N, L, K)

    def _window(self, step_rescale: float | Tensor) -> int | Tensor:
        assert self.window > 0, "a head without frame_logits"
        if isinstance(step_rescale, Tensor) and step_rescale.ndim:
            return (self.window / step_rescale.double().cpu()).round().long().clamp(min=1)
        return max(1, round(self.window / float(step_rescale)))

    def _average(self, votes: Tensor, state: State) -> tuple[Tensor, State]:
        """Running mean over the window, through sums in float64: exact for days, whatever the chunking."""
        if self.pooling == "last":
            return votes + self.reader.bias, state
        f, W = votes.shape[1], state["votes"].shape[1]
        history = torch.cat([state["votes"], votes], dim=1)  # (N, W + f, K)
        leaving, widths = history[:, :f], W
        if "window" in state:  # narrower windows lose their votes earlier
            start = (W - state["window"])[:, None] + torch.arange(f, device=votes.device)  # (N, f)
            leaving = history.gather(1, start[..., None].expand(-1, -1, votes.shape[2]))
            widths = state["window"][:, None, None]
        exact = state["sums"].dtype
        sums = state["sums"][:, None] + (votes.to(exact) - leaving.to(exact)).cumsum(1)  # (N, f, K)
        seen = state["seen"] + torch.arange(1, f + 1, device=votes.device)[:, None]  # (f, 1)
        logits = (sums / seen.clamp(max=widths)).to(votes.dtype) + self.reader.bias
        last = sums[:, -1].clone() if f else state["sums"]
        return logits, {**state, "seen": state["seen"] + f, "votes": history[:, f:].contiguous(), "sums": last}


class PairHead(nn.Module):
    """2N pooled documents -> logits (N, K): [a, b, a - b, a * b] -> dense -> GELU -> dense (S5 paper, retrieval)."""

    def __init__(self, H: int, K: int) -> None:
        super().__init__()
        self.layer1, self.layer2 = dense(4 * H, H), dense(H, K)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x (2N, L, H): all first documents, then all second ones; lengths (2N,) or None -> logits (N, K)."""
        assert len(x) % 2 == 0, "pairs come as 2N rows"
        with torch.autocast(x.device.type, enabled=False):
            a, b = pool(x, lengths, "mean").chunk(2)  # (N, H) each
            h = self.layer1(torch.cat([a, b, a - b, a * b], dim=-1))
            return self.layer2(F.gelu(h, approximate="tanh"))


class GaussianHead(nn.Module):
    """Features (N, L, H) -> mean and variance (N, L, K): two decoders dense -> tanh -> dense."""

    def __init__(self, H: int, K: int, *, hidden: int = 30) -> None:
        super().__init__()
        self.mean = nn.Sequential(dense(H, hidden), nn.Tanh(), dense(hidden, K))
        self.variance = nn.Sequential(dense(H, hidden), nn.Tanh(), dense(hidden, K))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (N, L, H) -> (mean (N, L, K), variance (N, L, K) > 0); every step stands alone, lengths change nothing."""
        v = self.variance(x)
        return self.mean(x), torch.where(v < 0, v.clamp(max=0).exp(), v + 1)


def pool(x: Tensor, lengths: Tensor | None, pooling: Pooling) -> Tensor:
    """x (N, L, H) -> (N, H): mean of the valid steps, or the last valid one."""
    if pooling == "last":
        last = x.new_full((len(x),), x.shape[1], dtype=torch.int64) if lengths is None else lengths.clamp(min=1)
        return x[torch.arange(len(x), device=x.device), last - 1]
    if lengths is None:
        return x.mean(1)
    mask = valid_steps(lengths, x.shape[1])
    share = mask.to(x.dtype) / lengths.clamp(min=1)[:, None]  # (N, L)
    return torch.einsum("nl,nlh->nh", share, x)


def _exact(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64  # MPS has no float64
