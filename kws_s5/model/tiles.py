"""Cuts a batch of clips, laid end to end, into tiles of rows that fit the processor's cache.

A tile is several whole clips, or a stretch of one. Legend: N clips of L steps; a row is one step of one clip.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kws_s5.model.products import buffer

ROWS = 4096  # of a tile, for each thread: fewer, and calls cost more than memory; more, and they leave the cache


@dataclass(frozen=True)
class Tile:
    """rows: of the batch; clips: they belong to; n_clips x n_steps rows in all."""

    rows: slice
    clips: slice
    n_clips: int
    n_steps: int


class Tiles:
    """Tiles in the order of time; ``clips``: most clips in one; ``most``: most rows in one."""

    def __init__(self, N: int, L: int) -> None:
        rows = ROWS * torch.get_num_threads()
        self._tiles: list[Tile] = []
        if rows >= 2 * L:
            for group in _parts(N, rows // L):
                n = group.stop - group.start
                self._tiles.append(Tile(slice(group.start * L, group.stop * L), group, n, L))
        else:
            for n in range(N):
                for part in _parts(L, rows):
                    steps = part.stop - part.start
                    self._tiles.append(Tile(slice(n * L + part.start, n * L + part.stop), slice(n, n + 1), 1, steps))
        self.clips = max(tile.n_clips for tile in self._tiles)
        self.most = max(tile.n_clips * tile.n_steps for tile in self._tiles)

    def __len__(self) -> int:
        return len(self._tiles)

    def __getitem__(self, i: int) -> Tile:
        return self._tiles[i]

    def scratch(self, name: str, tile: Tile, width: int, like: Tensor) -> Tensor:
        """(rows of the tile, width) of this thread's memory of that name."""
        return buffer(name, (tile.n_clips * tile.n_steps, width), like.dtype)


def _parts(total: int, most: int) -> list[slice]:
    """0..total in the fewest parts of at most ``most``, as equal as possible."""
    n = -(-total // most)
    edges = [round(i * total / n) for i in range(n + 1)]
    return [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
