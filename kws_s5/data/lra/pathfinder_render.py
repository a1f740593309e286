"""Dashes and markers -> a grey picture, anti-aliased by drawing ``anti_alias`` times as large.

A small pixel is on if its centre lies within half the thickness of a dash (within the radius of a marker). The share
of small pixels that are on is the coverage; a dash shows as paddle_contrast * min(1, snake_contrast * coverage), a
marker as its coverage, where both meet the brighter one.

Legend: S pixels a side, A anti_alias, n shapes, W window of small pixels around a shape.
"""

import math

import numpy as np


def drawn(
    dashes: np.ndarray,
    markers: np.ndarray,
    *,
    size: int,
    anti_alias: int,
    thickness: float,
    radius: float,
    snake_contrast: float,
    paddle_contrast: float,
) -> np.ndarray:
    """dashes (n, 2 ends, 2), markers (2, 2) centres, in pixels (x, y) -> (S, S) uint8."""
    lines = paddle_contrast * np.minimum(1.0, snake_contrast * _coverage(dashes, thickness / 2, size, anti_alias))
    discs = _coverage(np.stack([markers, markers], axis=1), radius, size, anti_alias)
    return np.rint(255.0 * np.maximum(lines, discs)).astype(np.uint8)


def _coverage(segments: np.ndarray, reach: float, size: int, A: int) -> np.ndarray:
    """Share of each pixel within ``reach`` of a segment: (S, S). A segment of two equal ends is a disc."""
    longest = float(np.hypot(*(segments[:, 1] - segments[:, 0]).T).max())
    W = math.ceil((longest + 2 * reach) * A) + 2
    corner = np.floor((segments.mean(1) - (longest / 2 + reach)) * A).astype(np.int64) - 1  # (n, 2)
    small = corner[:, None, None] + np.stack(np.meshgrid(np.arange(W), np.arange(W)), axis=-1)  # (n, W, W, 2) x, y
    on = _distance((small + 0.5) / A, segments) <= reach
    on &= ((small >= 0) & (small < size * A)).all(-1)
    grid = np.zeros((size * A, size * A), bool)
    grid[small[..., 1][on], small[..., 0][on]] = True
    return grid.reshape(size, A, size, A).mean((1, 3))


def _distance(points: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Distance of points (n, W, W, 2) from segments (n, 2, 2): (n, W, W)."""
    start, along = segments[:, None, None, 0], (segments[:, 1] - segments[:, 0])[:, None, None]
    squared = np.maximum((along**2).sum(-1), 1e-12)
    t = (((points - start) * along).sum(-1) / squared).clip(0.0, 1.0)
    return np.sqrt(((points - start - t[..., None] * along) ** 2).sum(-1))
