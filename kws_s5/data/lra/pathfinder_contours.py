"""Dashed contours that wind through a picture without touching each other: the geometry of Pathfinder.

A contour is a chain of dashes with gaps of ``margin`` between them. It grows from a first dash at both ends in turn (at
the other one where the first has no room); from one dash to the next the direction turns by phi with density
proportional to cos(phi)^(2 continuity), |phi| < 90 degrees, and the gap points half-way. Dashes keep a clearance from
everything but their neighbour in the chain.

Legend: m candidates, q points along a dash, k points drawn before, n dashes. Points are (x, y) in pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

FEW, MANY = 6, 32  # candidates for the next dash: a few first, then more
SPACING = 0.75  # pixels between the points that stand for a dash
NOTHING = np.zeros((0, 2))


class NoRoom(Exception):
    """The contour does not fit; try another place."""


@dataclass
class Canvas:
    """A square picture of ``size`` pixels and what was drawn on it."""

    size: int
    padding: float
    clearance: float
    points: np.ndarray = field(default_factory=lambda: NOTHING)  # (k, 2)

    def add(self, dashes: np.ndarray) -> None:
        """Draws dashes (n, 2 ends, 2)."""
        self.points = np.concatenate([self.points, sampled(dashes)])

    def inside(self, points: np.ndarray) -> np.ndarray:
        """(..., 2) -> (...) bool: not in the padding."""
        return ((points >= self.padding) & (points <= self.size - self.padding)).all(-1)

    def free(self, points: np.ndarray, others: Sequence[np.ndarray] = ()) -> np.ndarray:
        """(m, q, 2) -> (m,) bool: inside, and clear of everything drawn and of the points ``others``."""
        ok = self.inside(points).all(1)
        near = np.concatenate([self.points, *others])
        if len(near) and ok.any():
            squared = np.square(points[ok, :, :1] - near[:, 0])  # (m', q, k)
            squared += np.square(points[ok, :, 1:] - near[:, 1])
            ok[ok] = squared.min((1, 2)) > self.clearance**2
        return ok


@dataclass(frozen=True)
class Style:
    """How contours look."""

    length: float  # of a dash
    margin: float  # gap between dashes of a contour
    continuity: float


def grown(rng: np.random.Generator, canvas: Canvas, middle: np.ndarray, *, n_dashes: int, style: Style) -> np.ndarray:
    """A contour around ``middle`` (x, y): (n_dashes, 2 ends, 2). Raises NoRoom if it does not fit."""
    angle = rng.uniform(0.0, 2.0 * math.pi)
    along = style.length / 2 * np.array([math.cos(angle), math.sin(angle)])
    chain = [_sampled(np.stack([middle - along, middle + along])[None])[0]]  # points of each dash, (q, 2)
    if not canvas.free(chain[0][None])[0]:
        raise NoRoom
    angles = [angle + math.pi, angle]  # directions at the first and at the last end
    while len(chain) < n_dashes:
        if not any(_grow(rng, canvas, chain, angles, at_end=(len(chain) + turn) % 2, style=style) for turn in (0, 1)):
            raise NoRoom
    return np.stack([points[[0, -1]] for points in chain])


def sampled(dashes: np.ndarray) -> np.ndarray:
    """(n, 2 ends, 2) -> (k, 2) points along all dashes."""
    return _sampled(dashes).reshape(-1, 2)


def _grow(
    rng: np.random.Generator, canvas: Canvas, chain: list[np.ndarray], angles: list[float], *, at_end: int, style: Style
) -> bool:
    """Adds a dash at the end (at_end = 0: before the start) if one fits; says whether."""
    others, neighbour = (chain[:-1], chain[-1]) if at_end else (chain[1:], chain[0])
    for m in (FEW, MANY):
        turn = _turns(rng, m, style.continuity)
        half, full = angles[at_end] + turn / 2, angles[at_end] + turn
        start = neighbour[-at_end] + style.margin * np.stack([np.cos(half), np.sin(half)], -1)  # (m, 2)
        end = start + style.length * np.stack([np.cos(full), np.sin(full)], -1)
        points = _sampled(np.stack([start, end], axis=1))
        fits = canvas.free(points, others)
        if fits.any():
            first = int(fits.argmax())
            angles[at_end] = float(full[first])
            chain.insert(len(chain) if at_end else 0, points[first] if at_end else points[first, ::-1])
            return True
    return False


def _turns(rng: np.random.Generator, m: int, continuity: float) -> np.ndarray:
    """(m,) angles with density ~ cos(phi)^(2 continuity), by inverting the summed density."""
    return np.interp(rng.random(m), *_summed_density(continuity))


@lru_cache
def _summed_density(continuity: float) -> tuple[np.ndarray, np.ndarray]:
    phi = np.linspace(-math.pi / 2, math.pi / 2, 181)
    density = np.cos(phi).clip(0.0) ** (2.0 * continuity)
    return np.cumsum(density) / density.sum(), phi


def _sampled(dashes: np.ndarray) -> np.ndarray:
    """Dashes (n, 2, 2) of one length -> (n, q, 2) points from end to end."""
    q = math.ceil(np.hypot(*(dashes[0, 1] - dashes[0, 0])) / SPACING - 1e-6) + 1
    share = np.linspace(0.0, 1.0, q)[:, None]
    return (1.0 - share) * dashes[:, :1] + share * dashes[:, 1:]
