"""Clips that are no word: the end of one word followed by the beginning of another, labelled ``_unknown_``.

Running speech is full of pieces that sound like a keyword; a spotter that has only seen whole words fires on them.

Legend: N batch, L samples.
"""

import numpy as np
import torch
from torch import Tensor

from kws_s5.data.keywords.manifest import SILENCE

CUT = (0.35, 0.65)  # share of a clip's energy before the place where it is cut: both parts lack much of the word
FADE = 0.005  # seconds at both ends of a piece


def splice(
    x: Tensor, lengths: Tensor, rates: Tensor, rows: np.ndarray, others: np.ndarray, shares: np.ndarray
) -> Tensor:
    """(N, L) where each of ``rows`` is its own end and then the beginning of the clip ``others`` says.

    Args:
        x: (N, L) waveforms, 0 behind their lengths.
        lengths: (N,) samples. Results keep the row's own: what is longer loses its end, what is shorter ends silent.
        rates: (N,) Hz; the same for both clips.
        rows: (R,) indices of rows.
        others: (R,) indices of rows.
        shares: (R, 2) of the energy before the cut in either clip.
    """
    out = x.clone()
    for row, other, (first, second) in zip(rows.tolist(), others.tolist(), shares.tolist(), strict=True):
        n = int(lengths[row])
        end = x[row, _cut(x[row], first) : n]
        start = x[other, : _cut(x[other], second)]
        pieces = torch.cat([_faded(piece, round(FADE * float(rates[row]))) for piece in (end, start)])[:n]
        out[row, : len(pieces)] = pieces
        out[row, len(pieces) :] = 0.0
    return out


def _cut(x: Tensor, share: float) -> int:
    """Sample before which so much of the energy lies."""
    energy = torch.cumsum(x.double().square(), 0)
    return int(torch.searchsorted(energy, share * energy[-1]))


def _faded(x: Tensor, n: int) -> Tensor:
    """Rises from silence and falls back to it within n samples: no clicks where a word was cut."""
    t = torch.arange(1, len(x) + 1, dtype=x.dtype, device=x.device)
    return x * (torch.minimum(t, t.flip(0)) / (n + 1)).clamp(max=1.0)


def choose(
    y: Tensor, rates: Tensor, labels: tuple[str, ...], probability: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to splice and the clips whose beginnings they get: no silence, and both of the same rate."""
    chosen, others = rng.random(len(y)) < probability, rng.permutation(len(y))
    rates = rates.cpu().numpy()
    sound = np.ones(len(y), bool) if SILENCE not in labels else y.cpu().numpy() != labels.index(SILENCE)
    rows = np.flatnonzero(chosen & sound & sound[others] & (rates == rates[others]))
    return rows, others[rows]
