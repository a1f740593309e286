"""Data sets over prepared rows: token sequences, pairs of them, and pixel sequences.

Legend: n examples, L steps, U values a step.
"""

import numpy as np
import torch
from torch.utils.data import Dataset

from kws_s5.data.batch import Example
from kws_s5.data.lra.store import Rows

LEFT_RIGHT, ALL_SYMMETRIES = 2, 8  # symmetries of a square, in the order of ``symmetric``


class TokenSet(Dataset):
    """Example: (L,) int64 tokens and a class."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.targets = rows, rows.targets

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        return Example(_tokens(self.rows[index]), torch.tensor(int(self.targets[index])))


class PairSet(Dataset):
    """Example: two token sequences (x and x2) and a class."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.targets = rows, rows.targets

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        first, second = _tokens(self.rows[2 * index]), _tokens(self.rows[2 * index + 1])
        return Example(first, torch.tensor(int(self.targets[index])), x2=second)


class PixelSet(Dataset):
    """Example: (L, U) float32 = (value / 255 - mean) / std of a uint8 picture read row by row, and a class."""

    def __init__(
        self,
        rows: Rows,
        *,
        mean: tuple[float, ...] = (0.0,),
        std: tuple[float, ...] = (1.0,),
        order: np.ndarray | None = None,
        n_symmetries: int = 1,
    ) -> None:
        """Args:
        mean, std: of the U channels, for values in [0, 1]. order: (L,) which pixel comes at which step.
        n_symmetries: show square pictures in one of so many ways, drawn anew every epoch; 1: as they are.
        """
        self.rows, self.targets, self.order, self.n_symmetries = rows, rows.targets, order, n_symmetries
        self.epoch = 0
        self.scale = np.asarray([1.0 / (255.0 * s) for s in std], np.float32)
        self.offset = np.asarray([m / s for m, s in zip(mean, std, strict=True)], np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def set_epoch(self, epoch: int) -> None:
        """Fixes the random choices: they are a function of (epoch, index)."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> Example:
        pixels = self.rows[index].reshape(-1, len(self.scale))  # (L, U)
        if self.n_symmetries > 1:
            pixels = symmetric(pixels, np.random.default_rng([self.epoch, index]).integers(self.n_symmetries))
        if self.order is not None:
            pixels = pixels[self.order]
        x = pixels.astype(np.float32) * self.scale - self.offset
        return Example(torch.from_numpy(x), torch.tensor(int(self.targets[index])))


def symmetric(pixels: np.ndarray, which: int) -> np.ndarray:
    """A square picture (L, U) as it is (0), mirrored left to right (1), and both turned by quarters (2 to 7)."""
    side = round(len(pixels) ** 0.5)
    picture = np.rot90(pixels.reshape(side, side, -1), which // 2)
    return (picture[:, ::-1] if which % 2 else picture).reshape(pixels.shape)


def _tokens(row: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(row.astype(np.int64))
