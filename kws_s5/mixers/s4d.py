"""S4D: one diagonal state space model for each feature (Gu, Gupta, Goel, Re, "On the Parameterization and
Initialization of Diagonal State Space Models", NeurIPS 2022).

    x'(t) = A x(t) + B u(t),  y(t) = C x(t) + D u(t),  A diagonal; B = 1, as only B C matters         (sections 2, 3.3)
    x_k = A_bar x_{k-1} + B_bar u_k,  y_k = 2 Re(sum_n C_n x_k,n) + D u_k           (ZOH or bilinear, sections 2, 3.1)
    y = K * u + D u,  K_l = 2 Re(sum_n C_n B_bar_n A_bar_n^l)                         (Vandermonde kernel, section 3.2)
    A = -exp(log_A_real) + i A_imag;  Delta = step_rescale * exp(log_step), one for each feature           (section 3.3)

Where A begins (section 4):
    S4D-LegS   eigenvalues of HiPPO-LegS's normal part          S4D-Lin   A_n = -1/2 + i pi n
    S4D-Inv    A_n = -1/2 + i N / pi (N / (2n + 1) - 1)

Whole clips go through an FFT, streams through the library's scan; as one system it is an S5 with sparse B and C.
Legend: N batch, L steps, H features, P stored states of a feature (half of the paper's N), T tile of the kernel.
"""

import math

import torch
from torch import Tensor, nn

from kws_s5.config.mixers import S4DMixer
from kws_s5.config.training import Role
from kws_s5.ops.scan.choice import scan
from kws_s5.ssm.diagonal import DiagonalSystem
from kws_s5.ssm.discretize import discretize
from kws_s5.ssm.hippo import make_dplr_hippo_blocks
from kws_s5.ssm.init import init_log_step
from kws_s5.ssm.memo import Memo


def build(config: S4DMixer, H: int) -> "S4D":
    return S4D(H, config)


def initial_A(kind: str, n_states: int) -> Tensor:
    """Half of the spectrum, with positive imaginary parts (P,) complex128, of n_states = 2P."""
    n = torch.arange(n_states // 2, dtype=torch.float64)
    if kind == "legs":
        return make_dplr_hippo_blocks(n_states, 1, True)[0].conj().flip(0).resolve_conj()
    imag = math.pi * n if kind == "lin" else n_states / math.pi * (n_states / (2 * n + 1) - 1)
    return torch.complex(torch.full_like(n, -0.5), imag)


class S4D(nn.Module):
    """(N, L, H) -> (N, L, H), causal: padding needs no mask."""

    takes_intervals = False
    norm_between = False
    whole_clips = ""

    def __init__(self, H: int, config: S4DMixer) -> None:
        super().__init__()
        self._memo = Memo()
        self.H, self.P, self.discretization = H, config.n_states // 2, config.discretization
        A, default = initial_A(config.init, config.n_states).repeat(H, 1), torch.get_default_dtype()
        self.log_A_real = nn.Parameter(torch.log(-A.real).to(default))  # (H, P)
        self.A_imag = nn.Parameter(A.imag.to(default).contiguous())  # (H, P)
        self.C = nn.Parameter(torch.randn(H, self.P, 2) * math.sqrt(0.5))  # real, imaginary; E |C|^2 = 1
        self.D = nn.Parameter(torch.randn(H))
        self.log_step = nn.Parameter(init_log_step(H, config.dt_min, config.dt_max).to(default))  # (H, 1)

    def parameter_roles(self) -> dict[str, Role]:
        return {"log_A_real": "pole", "A_imag": "pole", "log_step": "step", "C": "output", "D": "output"}

    def forward(
        self, u: Tensor, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """As the contract says: y = K * u + D u, the convolution by FFT."""
        L = u.shape[1]
        K = self.kernel(L, step_rescale)  # (H, L) or (N, H, L)
        spectrum = torch.fft.rfft(u.mT.to(K.dtype), 2 * L) * torch.fft.rfft(K, 2 * L)  # (N, H, L + 1)
        return torch.addcmul(torch.fft.irfft(spectrum, 2 * L)[..., :L].mT, self.D, u)

    def kernel(self, L: int, step_rescale: float | Tensor = 1.0) -> Tensor:
        """K (H, L), or (N, H, L) for one rescale per clip.

        The powers are products of two short tables, A_bar^(T q + r) = A_bar^(T q) A_bar^r: the sum over states becomes
        a matrix product, and no tensor of H P L appears.
        """
        a, gain = self._system(step_rescale)  # (..., H, P)
        T = max(1, math.isqrt(L))
        z, C = torch.log(a)[..., None], torch.view_as_complex(self.C)
        coarse = torch.exp(z * (T * torch.arange(-(-L // T), device=z.device)))  # (..., H, P, L / T)
        fine = torch.exp(z * torch.arange(T, device=z.device))  # (..., H, P, T)
        weighted = coarse.to(C.dtype) * (C * gain.to(C.dtype))[..., None]
        return 2 * (weighted.mT @ fine.to(C.dtype)).real.flatten(-2)[..., :L]

    def initial_state(self, N: int) -> Tensor:
        """Zero state (N, 2 H P)."""
        return self.D.new_zeros(N, 2 * self.H * self.P)

    def stream(self, u: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        a, gain = (_planar(x) for x in self._system(step_rescale))  # (2 H P,) or (N, 2 H P)
        Bu = gain.to(u.dtype)[..., None, :] * u.repeat_interleave(self.P, -1).repeat(1, 1, 2)  # (N, l, 2 H P)
        xs = scan(a, Bu, initial=state)
        re, im = xs.unflatten(-1, (2, self.H, self.P)).unbind(-3)  # (N, l, H, P)
        y = 2 * (re * self.C[..., 0] - im * self.C[..., 1]).sum(-1)
        return torch.addcmul(y, self.D, u), xs[:, -1].clone()

    def diagonal_system(self, step_rescale: float = 1.0) -> DiagonalSystem:
        """All features as one system: row h P + p of B_bar (H P, H) and column h P + p of C belong to feature h."""
        a, gain = (x.detach().flatten() for x in self._system(step_rescale))
        own = torch.eye(self.H, dtype=torch.float64).repeat_interleave(self.P, 0)  # (H P, H)
        C = torch.view_as_complex(self.C.detach().double()).flatten()
        return DiagonalSystem(a, gain[:, None] * own, (2 * C[:, None] * own).mT, self.D.detach().double())

    def _system(self, step_rescale: float | Tensor) -> tuple[Tensor, Tensor]:
        """A_bar and gain B_bar (H, P) complex128, or (N, H, P) for one rescale per clip; streams work them out once."""
        depends = (step_rescale, self.log_step, self.log_A_real, self.A_imag)
        return self._memo(lambda: self._discretised(step_rescale), *depends)

    def _discretised(self, step_rescale: float | Tensor) -> tuple[Tensor, Tensor]:
        rescale = torch.as_tensor(step_rescale, dtype=torch.float64, device=self.D.device)
        Delta = rescale[..., None, None] * torch.exp(self.log_step.double()).expand(self.H, self.P)
        poles = -torch.exp(self.log_A_real.double()).flatten(), self.A_imag.double().flatten()
        parts = discretize(*poles, Delta.flatten(-2), self.discretization)  # four of (..., H P)
        shaped = [part.unflatten(-1, (self.H, self.P)) for part in parts]
        return torch.complex(*shaped[:2]), torch.complex(*shaped[2:])


def _planar(x: Tensor) -> Tensor:
    """(..., H, P) complex -> (..., 2 H P), real parts first."""
    return torch.cat([x.real.flatten(-2), x.imag.flatten(-2)], -1)
