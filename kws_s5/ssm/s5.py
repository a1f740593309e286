"""S5SSM: the linear state space model of one S5 layer (Smith et al., ICLR 2023, section 3).

    x_k = Lambda_bar x_{k-1} + B_bar u_k        (and a second scan from the end when bidirectional)
    y_k = 2 Re(C~ x_k) + D u_k                  (without conj_sym: Re(C~ x_k) + D u_k)
    Delta = step_rescale * exp(log_step) * dt;  Lambda_bar, B_bar = gamma * B~ from discretize.py

Parameters carry the official code's names and layouts: Lambda_re (P,), Lambda_im (P,), B (P, H, 2), C (H, P, 2) or C1
and C2 when bidirectional, D (H,), log_step (P, 1). Inside, complex numbers are planar real pairs [re | im], so both
projections are ordinary real matrix products.

Shapes: N batch, L steps, H features, P stored states.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kws_s5.config import S5Mixer
from kws_s5.config.training import Role
from kws_s5.ops.discrete.hold import fits, hold
from kws_s5.ops.scan.choice import scan
from kws_s5.ops.scan.grid import scan_grid
from kws_s5.ops.scan.reference import multiply
from kws_s5.ops.switch import compiled
from kws_s5.ssm.diagonal import DiagonalSystem
from kws_s5.ssm.discretize import discretize
from kws_s5.ssm.hippo import make_dplr_hippo_blocks
from kws_s5.ssm.init import init_B, init_C, init_log_step
from kws_s5.ssm.interpolation import below_nyquist, linear_states, linear_weights
from kws_s5.ssm.memo import Memo

SMALL = 1 << 20  # N L P up to which one thread does (scan/grid.py)
CLIP = -1e-4  # largest real part with eigenvalues="clip", as in the official code


class S5SSM(nn.Module):
    """Linear SSM (N, L, H) -> (N, L, H); optionally bidirectional, at any step size, with state carried over.

    With ``eigenvalues="exp"`` the parameter Lambda_re holds log(-Re Lambda). Keeps the contract of mixers/protocol.py.
    """

    takes_intervals = True
    norm_between = False

    interpolation: Literal["hold", "linear"] = "hold"
    """Evaluation at a lower rate: what the input does between two samples (interpolation.py). ``step`` always holds."""
    mask_above_nyquist: bool = False
    """Evaluation at a lower rate: silence modes that it would alias."""

    def __init__(self, H: int, ssm: S5Mixer) -> None:
        super().__init__()
        self.ssm = ssm
        self._system_memo, self._readout_memo = Memo(), Memo()
        self.H, self.P = H, ssm.ssm_size // 2 if ssm.conj_sym else ssm.ssm_size
        Lambda, V, Vinv = make_dplr_hippo_blocks(ssm.ssm_size, ssm.blocks, ssm.conj_sym)
        real = torch.log(-Lambda.real) if ssm.eigenvalues == "exp" else Lambda.real
        self.Lambda_re = _parameter(real)  # (P,)
        self.Lambda_im = _parameter(Lambda.imag)  # (P,)
        self.B = _parameter(torch.view_as_real(init_B(H, Vinv)))  # (P, H, 2)
        for name in self.readouts:
            setattr(self, name, _parameter(torch.view_as_real(init_C(H, V, ssm.C_init))))  # (H, P, 2)
        self.D = _parameter(torch.randn(H, dtype=torch.float64))  # (H,)
        self.log_step = _parameter(init_log_step(self.P, ssm.dt_min, ssm.dt_max))  # (P, 1)

    def parameter_roles(self) -> dict[str, Role]:
        """As the published optimiser groups tell them apart (training/optim.py)."""
        return {
            "Lambda_re": "pole",
            "Lambda_im": "pole",
            "log_step": "step",
            "B": "input",
            "D": "output",
            **dict.fromkeys(self.readouts, "output"),
        }

    @property
    def whole_clips(self) -> str:
        """Why it cannot run step by step; empty: it can."""
        if self.ssm.bidirectional:
            return "bidirectional"
        return "" if self.interpolation == "hold" else "interpolation = 'linear' looks back across chunks"

    @property
    def readouts(self) -> tuple[str, ...]:
        """Names of the output matrices."""
        return ("C1", "C2") if self.ssm.bidirectional else ("C",)

    def forward(
        self,
        u: Tensor,
        *,
        step_rescale: float | Tensor = 1.0,
        dt: Tensor | None = None,
        lengths: Tensor | None = None,
        initial: Tensor | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Outputs ys (N, L, H); with ``return_state`` also the forward state (N, 2P) at each clip's last step.

        Args:
            u: (N, L, H) inputs.
            step_rescale: training rate / rate of ``u``: one number, or (N,) one per clip.
            dt: (N, L) multipliers of Delta, the interval before each step, for irregular sampling. In the backward
                direction the decay between steps k and k + 1 uses dt_{k+1}; the gain of u_k uses dt_k in both.
            lengths: (N,) valid steps of each clip; what stands behind them changes nothing before them.
            initial: (N, 2P) state before the first step (forward direction).
        """
        if lengths is not None:
            valid = torch.arange(u.shape[1], device=u.device) < lengths[:, None]  # (N, L)
            u = torch.where(valid[:, :, None], u, 0)
        if self.interpolation == "linear" and dt is None:
            xs = linear_states(
                u,
                self.B,
                self._linear_weights(step_rescale),
                lengths=lengths,
                initial=initial,
                bidirectional=self.ssm.bidirectional,
            )  # (N, L, 2P or 4P)
        else:
            direction = "both" if self.ssm.bidirectional else "forward"
            xs = self._states(u, step_rescale, dt, initial, direction)  # (N, L, 2P or 4P)
        ys = torch.addcmul(F.linear(xs, self._readout()), self.D, u)  # (N, L, H)
        return (ys, self._last_state(xs, lengths, initial)) if return_state else ys

    def step(
        self, u: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output y (N, H) and next state (N, 2P) for one step u (N, H); ``dt`` (N,). Not for bidirectional models."""
        assert not self.ssm.bidirectional, "a bidirectional model cannot run step by step"
        Lambda_bar, Bu = self._drive(u[:, None], step_rescale, None if dt is None else dt[:, None])
        Lambda_bar = Lambda_bar[:, 0] if Lambda_bar.dim() == 3 else Lambda_bar
        state = multiply(Lambda_bar, state) + Bu[:, 0].to(state.dtype)  # (N, 2P)
        return torch.addcmul(F.linear(state, self._readout()), self.D, u), state

    def initial_state(self, N: int) -> Tensor:
        """Zero state (N, 2P)."""
        return self.D.new_zeros(N, 2 * self.P)

    def stream(self, u: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """The next chunk of a stream: u (N, l, H), state (N, 2P) -> ys (N, l, H) and the next state."""
        ys, state = self(u, step_rescale=step_rescale, initial=state, return_state=True)
        return ys, state.clone()  # a view would keep the whole chunk's states

    def diagonal_system(self, step_rescale: float = 1.0) -> DiagonalSystem | None:
        """The discrete system in double precision; None where it needs whole clips."""
        if self.whole_clips:
            return None
        poles = (part.detach().double() for part in self.Lambda())
        parts = discretize(*poles, self._Delta(step_rescale).detach(), self.ssm.discretization)
        Lambda_bar, gamma = torch.complex(*parts[:2]), torch.complex(*parts[2:])
        B, C = (torch.view_as_complex(x.detach().double()) for x in (self.B, self.C))
        C = 2 * C if self.ssm.conj_sym else C
        return DiagonalSystem(Lambda_bar, gamma[:, None] * B, C, self.D.detach().double())

    def Lambda(self) -> tuple[Tensor, Tensor]:
        """Real and imaginary parts (P,) of the eigenvalues in continuous time, after the chosen parameterisation."""
        if self.ssm.eigenvalues == "exp":
            return -torch.exp(self.Lambda_re), self.Lambda_im
        if self.ssm.eigenvalues == "clip":
            return self.Lambda_re.clamp(max=CLIP), self.Lambda_im
        return self.Lambda_re, self.Lambda_im

    def system(self, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """Discrete system: Lambda_bar (2P,) and B_bar (2P, H) as planar pairs, with a leading N for rescales (N,)."""
        depends = (step_rescale, self.mask_above_nyquist, self.Lambda_re, self.Lambda_im, self.log_step, self.B)
        return self._system_memo(lambda: self._system(step_rescale), *depends)

    def _states(
        self, u: Tensor, step_rescale: float | Tensor, dt: Tensor | None, initial: Tensor | None, direction: str
    ) -> Tensor:
        """(N, L, 2P or 4P), without any tensor of L x P x H."""
        if dt is None:
            return scan(*self._drive(u, step_rescale, None), direction=direction, initial=initial)
        systems, place, v = self._irregular(u, step_rescale, dt)
        small = place is not None and place.numel() * self.P <= SMALL
        if small and initial is None and v.dtype == systems.dtype and compiled():
            return scan_grid(systems, place, v, direction)
        return scan(*_gathered(systems, place, v), direction=direction, initial=initial)

    def _drive(self, u: Tensor, step_rescale: float | Tensor, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """Lambda_bar, (2P,), (N, 2P) or (N, L, 2P), and Bu (N, L, 2P)."""
        if dt is None:
            Lambda_bar, B_bar = self.system(step_rescale)
            return Lambda_bar, u @ B_bar.mT
        return _gathered(*self._irregular(u, step_rescale, dt))

    def _irregular(self, u: Tensor, step_rescale: float | Tensor, dt: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Systems [Lambda_bar | gamma], (N, L, 4P) or (M, 4P) with the row of each step (N, L), and B~ u (N, L, 2P)."""
        if isinstance(step_rescale, Tensor) and step_rescale.dim():
            step_rescale = step_rescale.to(dt.device)[:, None]
        values, place = _distinct(dt * step_rescale)  # (N, L), or (M,) different ones
        Lambda = self.Lambda()
        if self.ssm.discretization == "zoh" and fits(values, *Lambda, self.log_step):
            systems = torch.cat(hold(*Lambda, self.log_step, values), -1)
        else:
            Delta = values[..., None] * self._Delta(1.0)  # (N, L, P) or (M, P)
            systems = torch.cat(discretize(*Lambda, Delta, self.ssm.discretization), -1)
        return systems, place, F.linear(u, self.B.movedim(-1, 0).flatten(0, 1))

    def _system(self, step_rescale: float | Tensor) -> tuple[Tensor, Tensor]:
        """Lambda_bar (2P,) and B_bar (2P, H), with a leading N for one rescale per clip."""
        Lambda = self.Lambda()
        one_rate = not getattr(step_rescale, "ndim", 0) and not self.mask_above_nyquist
        if self.ssm.discretization == "zoh" and one_rate and fits(step_rescale, *Lambda, self.log_step, self.B):
            return hold(*Lambda, self.log_step, float(step_rescale), self.B)
        a_re, a_im, g_re, g_im = discretize(*Lambda, self._Delta(step_rescale), self.ssm.discretization)
        if self.mask_above_nyquist:
            keep = below_nyquist(self.Lambda_im, self._Delta(1.0), step_rescale).to(g_re.dtype)
            g_re, g_im = g_re * keep, g_im * keep
        g_re, g_im = g_re[..., None], g_im[..., None]  # (P, 1) or (N, P, 1)
        B_re, B_im = self.B.unbind(-1)  # (P, H)
        B_bar = torch.cat([g_re * B_re - g_im * B_im, g_re * B_im + g_im * B_re], -2)  # (2P, H) or (N, 2P, H)
        return torch.cat([a_re, a_im], -1), B_bar

    def _Delta(self, step_rescale: float | Tensor) -> Tensor:
        """step_rescale * exp(log_step), float64 where the device has it: (P,), or (N, P) for one rescale per clip."""
        if isinstance(step_rescale, Tensor) and step_rescale.dim():
            step_rescale = step_rescale.to(self.D.device)[:, None]
        log_step = self.log_step[:, 0]
        return step_rescale * torch.exp(log_step if log_step.device.type == "mps" else log_step.double())

    def _linear_weights(self, step_rescale: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of interpolation.py, (P,) or (N, P); one rescale, or (N,) one per clip."""
        assert self.ssm.discretization == "zoh", "linear interpolation is defined for zero-order hold"
        r = torch.as_tensor(step_rescale, dtype=torch.float64, device=self.D.device)
        r, Delta = r[:, None] if r.dim() else r, torch.exp(self.log_step[:, 0].double())
        Lambda_bar, *gains = linear_weights(*self.Lambda(), Delta, r)
        keep = below_nyquist(self.Lambda_im, Delta, r) if self.mask_above_nyquist else 1.0
        return Lambda_bar, *(gain * keep for gain in gains)

    def _readout(self) -> Tensor:
        """(H, 2P) real weight of 2 Re(C~ x), or (H, 4P) for both directions."""
        return self._readout_memo(self._readout_weight, *(getattr(self, name) for name in self.readouts))

    def _readout_weight(self) -> Tensor:
        scale = 2.0 if self.ssm.conj_sym else 1.0
        planes = [plane for name in self.readouts for plane in getattr(self, name).unbind(-1)]  # re, im, re, im: (H, P)
        return torch.cat([-scale * plane if k % 2 else scale * plane for k, plane in enumerate(planes)], -1)

    def _last_state(self, xs: Tensor, lengths: Tensor | None, initial: Tensor | None) -> Tensor:
        """Forward state (N, 2P) at the last valid step; a clip of no steps keeps its initial state."""
        before = xs.new_zeros(len(xs), 2 * self.P) if initial is None else initial.to(xs.dtype)
        if xs.shape[1] == 0:
            return before
        if lengths is None:
            return xs[:, -1, : 2 * self.P]
        last = xs[torch.arange(len(xs), device=xs.device), lengths.clamp(min=1) - 1, : 2 * self.P]
        return torch.where((lengths > 0)[:, None], last, before)


def _gathered(systems: Tensor, place: Tensor | None, v: Tensor) -> tuple[Tensor, Tensor]:
    """Lambda_bar and Bu (N, L, 2P) of what ``_irregular`` gives."""
    Lambda_bar, gamma = (systems if place is None else systems[place]).chunk(2, -1)
    return Lambda_bar, multiply(gamma, v.to(gamma.dtype))


def _distinct(dt: Tensor) -> tuple[Tensor, Tensor | None]:
    """The M different intervals of dt (N, L) and the place of each step's among them; (dt, None) where few repeat.

    Irregular data often has its times on a grid; per-step discretisation is then most of a small model's work.
    """
    if dt.requires_grad or dt.device.type != "cpu" or torch.compiler.is_compiling():
        return dt, None
    values, place = torch.unique(dt, return_inverse=True)
    return (values, place) if 4 * len(values) <= dt.numel() else (dt, None)


def _parameter(values: Tensor) -> nn.Parameter:
    """Drawn in float64, cast once."""
    return nn.Parameter(values.to(torch.get_default_dtype()).contiguous())
