"""A data set over the store: int16 pieces of decoded recordings -> Examples, in a few microseconds each.

An item is (row of the store, start, stop, gain, class); a clip and a cut of noise differ in nothing else.
Legend: L steps (samples).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset

from kws_s5.data.batch import Example
from kws_s5.data.keywords.store import Store

SILENT = -1  # row of digital silence


@dataclass(frozen=True, slots=True)
class Item:
    """One example: samples start to stop of a row of the store, times gain."""

    id: str
    row: int
    start: int
    stop: int
    gain: float
    target: int


class Clips(Dataset):
    """Examples x (L, 1) float32, y () int64, rate in Hz; L as chosen by ``seconds`` and ``pad`` at the clip's own rate.

    With ``random_windows`` longer clips are cut at a place that depends on (seed, epoch, index) alone.
    """

    def __init__(
        self,
        store: Store,
        items: Sequence[Item],
        *,
        seconds: float = 0.0,
        pad: bool = False,
        random_windows: bool = False,
        seed: int = 0,
        silent_rate: float = 16000.0,
    ) -> None:
        """``seconds``: longest example, 0 for no limit; ``pad``: zeros at the end up to it. Longer: the middle."""
        self.store, self.items = store, tuple(items)
        self.seconds, self.pad, self.random_windows, self.seed = seconds, pad and seconds > 0, random_windows, seed
        self.epoch = 0
        rows = np.array([item.row for item in items], dtype=np.int64)
        rates = np.where(rows == SILENT, silent_rate, store.index["rate"][rows]) if len(rows) else np.zeros(0)
        sizes = np.array([item.stop - item.start for item in items], dtype=np.int64)
        limits = np.maximum(1, np.rint(seconds * rates)).astype(np.int64) if seconds else sizes
        self.targets = np.array([item.target for item in items], dtype=np.int64)
        self.rates = rates
        self.lengths = limits if self.pad else np.minimum(sizes, limits)  # of x, in samples
        # as Python lists: reading one number of an array costs more than the whole of the arithmetic here
        self._rates, self._limits, self._lengths = rates.tolist(), limits.tolist(), self.lengths.tolist()
        self._y = torch.from_numpy(self.targets)

    @property
    def ids(self) -> list[str]:
        """What each example is: path below the root, or the cut of noise."""
        return [item.id for item in self.items]

    def set_epoch(self, epoch: int) -> None:
        """Chooses the random windows of ``epoch``."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Example:
        item = self.items[i]
        start, stop = item.start, item.stop
        excess = stop - start - self._limits[i]
        if excess > 0:
            start += self._offset(i, excess)
            stop = start + self._limits[i]
        x = np.empty(self._lengths[i], np.float32)
        x[stop - start :] = 0.0
        if item.row == SILENT:
            x[:] = 0.0
        else:
            samples, scale = self.store.piece(item.row, start, stop)
            sound = x[: stop - start]
            sound[:] = samples  # copy, then scale: faster than a product of mixed types
            sound *= np.float32(scale * item.gain)
        return Example(torch.from_numpy(x)[:, None], self._y[i], self._rates[i])  # x (L, 1)

    def _offset(self, i: int, excess: int) -> int:
        if not self.random_windows:
            return excess // 2
        return int(np.random.default_rng((self.seed % 2**32, self.epoch, i)).integers(excess + 1))
