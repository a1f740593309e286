"""Which moments of a pendulum sequence are seen, and the intervals between them.

Times are counted in frames of 0.01 s. A pattern is an increasing array of frame numbers for every sequence.
"""

import numpy as np

SEED_OFFSETS = {"train": 2000, "validation": 1000, "test": 0}
"""Sequence i draws its frames from default_rng(i + offset), as the published experiment does."""


def random_frames(split: str, n: int, *, n_observed: int = 50, n_frames: int = 100) -> list[np.ndarray]:
    """The published pattern: ``n_observed`` of ``n_frames`` without replacement, sorted; n arrays (n_observed,)."""
    rngs = (np.random.default_rng(i + SEED_OFFSETS[split]) for i in range(n))
    return [np.sort(rng.choice(n_frames, n_observed, replace=False)) for rng in rngs]


def regular_frames(n: int, *, every: int, n_frames: int = 100) -> list[np.ndarray]:
    """Every ``every``-th frame; n times the same array."""
    return [np.arange(0, n_frames, every) for _ in range(n)]


def clustered_frames(n: int, *, n_bursts: int = 5, burst: int = 10, n_frames: int = 100) -> list[np.ndarray]:
    """Bursts of consecutive frames with long random gaps between them; n arrays (n_bursts * burst,).

    The frames that are left over are spread over the gaps (and the ends) uniformly at random, from default_rng(i).
    """
    spare = n_frames - n_bursts * burst
    assert spare >= 0
    patterns = []
    for i in range(n):
        cuts = np.sort(np.random.default_rng(i).integers(0, spare + 1, n_bursts))
        starts = cuts + burst * np.arange(n_bursts)
        patterns.append((starts[:, None] + np.arange(burst)).ravel())
    return patterns


def hidden_frames(split: str, seen: list[np.ndarray], *, n_query: int, n_frames: int = 100) -> list[np.ndarray]:
    """``n_query`` frames of each sequence that ``seen`` leaves out, sorted, drawn from default_rng([i + offset, 1])."""
    patterns = []
    for i, frames in enumerate(seen):
        rng = np.random.default_rng([i + SEED_OFFSETS[split], 1])
        rest = np.setdiff1d(np.arange(n_frames), frames)
        patterns.append(np.sort(rng.choice(rest, min(n_query, len(rest)), replace=False)))
    return patterns


def intervals(times: np.ndarray) -> np.ndarray:
    """Times (L,) in frames -> (L,) float32 intervals to the moment before; the first is 1."""
    return np.diff(times, prepend=times[0] - 1.0).astype(np.float32)
