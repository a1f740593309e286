"""Which examples go where: published random splits, and limits on the number of examples."""

from collections.abc import Sequence

import numpy as np
import torch

PUBLISHED_SEED = 42  # of the random splits in the published loaders (CIFAR-10, MNIST, Pathfinder)


def random_parts(n: int, sizes: Sequence[int], *, seed: int = PUBLISHED_SEED) -> list[np.ndarray]:
    """Indices 0 .. n-1 in parts of the given sizes: what torch's random_split gives for a generator of that seed."""
    assert sum(sizes) == n
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).numpy()
    return np.split(order, np.cumsum(sizes)[:-1])


def limited(indices: Sequence[int], n: int, *, seed: int) -> np.ndarray:
    """At most ``n`` of the indices (0: all), drawn at random, in their order."""
    indices = np.asarray(indices, np.int64)
    if n == 0 or n >= len(indices):
        return indices
    return indices[np.sort(np.random.default_rng(seed).permutation(len(indices))[:n])]
