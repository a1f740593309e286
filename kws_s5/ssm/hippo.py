"""HiPPO-N: the diagonal Lambda and the eigenvectors V from which an S5 layer starts (S5 paper, section 3.2).

    HiPPO-LegS A  ->  A^N = A + p p^T with p_n = sqrt(n + 1/2)  (normal)  ->  A^N = V diag(Lambda) V^-1

A^N = -1/2 I + S with S skew-symmetric, so every eigenvalue has real part -1/2, V is unitary, and Lambda comes in
conjugate pairs. J blocks are J copies of one small matrix on the diagonal.

Shapes: S ssm_size, R = S / blocks (one block), P stored states (S / 2 with conj_sym, else S).
"""

import torch
from torch import Tensor


def make_hippo(size: int) -> Tensor:
    """HiPPO-LegS matrix A (size, size) float64: -(sqrt((2n+1)(2k+1)) below the diagonal, n + 1 on it, 0 above)."""
    root = torch.sqrt(1 + 2 * torch.arange(size, dtype=torch.float64))
    return -(torch.tril(torch.outer(root, root), -1) + torch.diag(torch.arange(1, size + 1, dtype=torch.float64)))


def make_hippo_normal(size: int) -> Tensor:
    """Normal part A^N = A + p p^T (size, size) float64 of HiPPO-LegS."""
    p = torch.sqrt(torch.arange(size, dtype=torch.float64) + 0.5)
    return make_hippo(size) + torch.outer(p, p)


def diagonalize(normal: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R,) and unitary eigenvectors (R, R), complex128, of -1/2 I + skew, by ascending imaginary part."""
    skew = (normal - normal.T) / 2
    imag, V = torch.linalg.eigh(-1j * skew)  # Hermitian, so the imaginary parts are exact reals and V is unitary
    real = normal.diagonal().mean().expand_as(imag)
    return torch.complex(real, imag), V


def make_dplr_hippo_blocks(ssm_size: int, blocks: int, conj_sym: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Lambda (P,), V (S, P) and V^-1 (P, S), all complex128, of ``blocks`` copies of HiPPO-N on the diagonal.

    With ``conj_sym`` the half of each block's spectrum with negative imaginary parts is kept; the other half is its
    conjugate, and the readout takes twice the real part.
    """
    assert ssm_size % blocks == 0 and not (conj_sym and (ssm_size // blocks) % 2), (ssm_size, blocks, conj_sym)
    R = ssm_size // blocks
    Lambda, V = diagonalize(make_hippo_normal(R))
    if conj_sym:
        Lambda, V = Lambda[: R // 2], V[:, : R // 2]
    V = torch.block_diag(*[V] * blocks)  # (S, P)
    return Lambda.repeat(blocks), V, V.mH.contiguous()
