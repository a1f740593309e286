"""5x5 convolution of one-channel images, 2x2 max pooling and relu in one, for CPUs: a matrix product and two loops.

    conv_pool(x, w, b) = relu(max_pool2d(conv2d(x, w, b, padding=2), 2))

The four outputs of a pooling cell see one 6x6 patch between them, so a product with all four shifted kernels,
(4 C, 36) @ (36, cells), gives them in four blocks of rows and pooling is an element-wise maximum (numba). Images go
through in small blocks that stay in the processor's cache. Four times as fast as torch's own operators one by one, and
the gradient of w and b (x has none) likewise.

Legend: N images, S side (even), T = S / 2 pooled side, C channels, M = images of a block * T * T cells.
"""

import torch
import torch.nn.functional as F
from numba import njit
from torch import Tensor

BLOCK = 32  # images
NOTHING = 4  # "winner" of a cell that relu has set to zero


def conv_pool(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """x (N, 1, S, S) float32 without gradient, w (C, 1, 5, 5), b (C,) -> (N, C, T, T)."""
    return _ConvPool.apply(x, w, b)


class _ConvPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        N, C, T = len(x), len(w), x.shape[-1] // 2
        phases = _phases(x)
        shifted = [F.pad(w[:, 0], (column, 1 - column, row, 1 - row)) for row in (0, 1) for column in (0, 1)]
        kernels = torch.cat(shifted).flatten(1)  # (4 C, 36)
        out = x.new_empty(N, C, T, T)
        winner = torch.empty(N, C, T, T, dtype=torch.uint8)
        bias = b.numpy()
        for n in range(0, N, BLOCK):
            block = slice(n, min(n + BLOCK, N))
            _pool((kernels @ _patches(phases, block)).numpy(), bias, out[block].numpy(), winner[block].numpy())
        ctx.save_for_backward(phases, winner)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        phases, winner = ctx.saved_tensors
        grad = grad.contiguous()
        N, C, T = winner.shape[:3]
        grad_kernels = grad.new_zeros(4 * C, 36)
        grad_b = grad.new_zeros(C)
        for n in range(0, N, BLOCK):
            block = slice(n, min(n + BLOCK, N))
            spread = grad.new_empty(4 * C, (block.stop - n) * T * T)  # gradients of the four blocks of rows
            _unpool(grad[block].numpy(), winner[block].numpy(), spread.numpy())
            grad_kernels.addmm_(spread, _patches(phases, block).T)
            grad_b += spread.sum(1).view(4, C).sum(0)
        grad_kernels = grad_kernels.view(2, 2, C, 6, 6)
        corners = [(row, column) for row in (0, 1) for column in (0, 1)]
        grad_w = sum(grad_kernels[row, column, :, row : row + 5, column : column + 5] for row, column in corners)
        return None, grad_w[:, None], grad_b


def _phases(x: Tensor) -> Tensor:
    """Padded images with even and odd rows and columns apart: (2, 2, N, T + 2, T + 2)."""
    T = x.shape[-1] // 2
    padded = F.pad(x[:, 0], (2, 2, 2, 2)).view(len(x), T + 2, 2, T + 2, 2)
    return padded.permute(2, 4, 0, 1, 3).contiguous()


def _patches(phases: Tensor, block: slice) -> Tensor:
    """Column m: the 6x6 pixels that pooling cell m sees; (36, M)."""
    T = phases.shape[-1] - 2
    patches = phases.new_empty(36, block.stop - block.start, T, T)
    _copy_patches(phases.numpy(), block.start, patches.numpy())
    return patches.flatten(1)


@njit(nogil=True, error_model="numpy", cache=True)
def _copy_patches(phases, start, patches):
    n, T = patches.shape[1], patches.shape[2]
    for k in range(36):
        row, column = k // 6, k % 6
        plane = phases[row % 2, column % 2]
        for i in range(n):
            for y in range(T):
                source, target = plane[start + i, row // 2 + y], patches[k, i, y]
                for x in range(T):
                    target[x] = source[column // 2 + x]


@njit(nogil=True, error_model="numpy", cache=True)
def _pool(products, bias, out, winner):
    """products (4 C, M) -> out (n, C, T, T) and which of the four it came from."""
    n, C, T = out.shape[0], out.shape[1], out.shape[2]
    cells = T * T
    flat, chosen = out.reshape(n, C, cells), winner.reshape(n, C, cells)
    for i in range(n):
        for c in range(C):
            first = products[c, i * cells : (i + 1) * cells]
            second = products[C + c, i * cells : (i + 1) * cells]
            third = products[2 * C + c, i * cells : (i + 1) * cells]
            fourth = products[3 * C + c, i * cells : (i + 1) * cells]
            _best(first, second, third, fourth, bias[c], flat[i, c], chosen[i, c])


@njit(nogil=True, error_model="numpy", cache=True)
def _best(first, second, third, fourth, bias, out, winner):
    for k in range(len(out)):
        best, which = first[k], 0
        which = 1 if second[k] > best else which
        best = max(best, second[k])
        which = 2 if third[k] > best else which
        best = max(best, third[k])
        which = 3 if fourth[k] > best else which
        best = max(best, fourth[k]) + bias
        winner[k] = which if best > 0 else NOTHING
        out[k] = max(best, 0)


@njit(nogil=True, error_model="numpy", cache=True)
def _unpool(grad, winner, spread):
    """grad and winner (n, C, T, T) -> spread (4 C, M): every gradient in the row block it came from, zero elsewhere."""
    n, C, T = grad.shape[0], grad.shape[1], grad.shape[2]
    cells = T * T
    flat, chosen = grad.reshape(n, C, cells), winner.reshape(n, C, cells)
    for i in range(n):
        for c in range(C):
            for phase in range(4):
                _where(flat[i, c], chosen[i, c], phase, spread[phase * C + c, i * cells : (i + 1) * cells])


@njit(nogil=True, error_model="numpy", cache=True)
def _where(grad, winner, phase, out):
    for k in range(len(out)):
        out[k] = grad[k] if winner[k] == phase else 0
