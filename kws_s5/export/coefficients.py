"""A bank's recurrences at a sample rate, in plain arithmetic: for numpy, and recorded into a graph by the same lines.

model/bank_design.py derives what stands here; this is its short form, one rate at a time. ``ops`` is NUMPY, or GraphOps
(complex_values.py) for graphs. Everything runs on (M, 1) columns and (1, J) rows, so that operators are all it takes.

Legend: M modes, J frequencies of the fit, T = 3 taps.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

TAPS, GRID, EXPONENT, BAND, USABLE = 3, 64, 0.6, 0.97, 0.96  # those of model/bank_design.py
TOLERANCE = 1e-6  # samples; of ops/bank/frames.py
OFFSET = 1e-12  # on every sample; of ops/bank/vector.py
TWO_PI = 2.0 * math.pi
SINE = math.sqrt(2.0)  # of model/front_bank.py

NUMPY = SimpleNamespace(
    polar=lambda r, phi: r * np.exp(1j * phi),
    complex=lambda re, im: re + 1j * im,
    exp=np.exp,
    sum=lambda z: z.sum(-1, keepdims=True),
    where=np.where,
    constant=lambda x: x,
)


def poles(ops: Any, decay: Any, frequency: Any, rate: Any, power: Any = 1.0) -> Any:
    """exp(lambda / rate) to a power: decay (1/s) and frequency (Hz) (M, 1), rate () or (1, 1), power (1, k)."""
    period = power / rate
    return ops.polar(ops.exp(-decay * period), frequency * TWO_PI * period)


def taps(ops: Any, decay: Any, frequency: Any, rate: Any, n_poles: int) -> list[Any]:
    """[c_0, c_1, c_2], complex (M, 1) each: v_k = c_0 u_k + c_1 u_{k-1} + c_2 u_{k-2} drives the poles.

    Least squares over the band of the rate, scaled to gain 1 at the centre; 0 for modes that the rate cannot carry.
    """
    theta = ops.constant(((np.arange(-GRID, GRID) + 0.5) * (math.pi * BAND / GRID))[None, :])  # (1, J) rad per sample
    half = ops.polar(1.0, theta * 0.5)
    unit = half * half  # z; its conjugate delays by a sample
    detuning, mirrored = (frequency * -TWO_PI + rate * theta * sign for sign in (1.0, -1.0))  # (M, J) rad/s
    square = decay * decay
    power = (square / (square + detuning * detuning)) ** float(n_poles)
    image = (square / (square + mirrored * mirrored)) ** float(n_poles)
    shape = power_of(decay / ops.complex(decay, detuning), n_poles)  # H(w)
    filtered = power_of(1.0 - poles(ops, decay, frequency, rate) * unit.conj(), n_poles)  # 1 / poles' response
    weight = (power + image) ** -EXPONENT / (filtered * filtered.conj()).real
    target = shape * filtered * half
    ahead = [1.0, unit, unit * unit]  # z^k
    lags = [ops.sum(weight * z) for z in ahead]  # of the Hermitian normal matrix
    lags[0] = ops.complex(lags[0], 0.0 * lags[0])
    normal = [[lags[t - s] if t >= s else lags[s - t].conj() for s in range(TAPS)] for t in range(TAPS)]
    c = solve(normal, [ops.sum(weight * target * z) for z in ahead])
    centre = ops.polar(1.0 + 0.0 * decay, frequency * -TWO_PI / rate)
    reached = c[0] + c[1] * centre + c[2] * centre * centre
    gain = (reached * reached.conj()).real ** 0.5 / (1.0 - ops.exp(-decay / rate)) ** float(n_poles)
    scale = ops.where(frequency <= rate * (0.5 * USABLE), 1.0 / gain, 0.0 * gain)
    return [tap * scale for tap in c]


def power_of(z: Any, n: int) -> Any:
    """z^n by repeated products, n >= 1."""
    return z if n == 1 else z * power_of(z, n - 1)


def solve(matrix: list[list[Any]], right: list[Any]) -> list[Any]:
    """Gaussian elimination without pivots (positive definite Hermitian matrices need none), entry by entry."""
    n = len(right)
    matrix, right = [list(row) for row in matrix], list(right)
    for i in range(n):
        for j in range(i + 1, n):
            factor = matrix[j][i] / matrix[i][i]
            matrix[j] = [b - factor * a for a, b in zip(matrix[i], matrix[j], strict=True)]
            right[j] = right[j] - factor * right[i]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            right[i] = right[i] - matrix[i][j] * right[j]
        right[i] = right[i] / matrix[i][i]
    return right
