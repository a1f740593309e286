"""Several sets of clips as one: recordings from different stores in one training."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from torch.utils.data import Dataset

from kws_s5.data.batch import Example
from kws_s5.data.keywords.clips import Clips


class JoinedClips(Dataset):
    """The examples of ``parts``, one after the other; what can be asked of Clips can be asked of it."""

    def __init__(self, parts: Sequence[Clips]) -> None:
        self.parts = tuple(parts)
        self._ends = list(accumulate(len(part) for part in parts))
        self.targets = np.concatenate([part.targets for part in parts])  # (n,) classes
        self.rates = np.concatenate([part.rates for part in parts])  # (n,) Hz
        self.lengths = np.concatenate([part.lengths for part in parts])  # (n,) samples

    @property
    def ids(self) -> list[str]:
        """What each example is, within its own folder."""
        return [id for part in self.parts for id in part.ids]

    def set_epoch(self, epoch: int) -> None:
        """Chooses the random windows of ``epoch``."""
        for part in self.parts:
            part.set_epoch(epoch)

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, i: int) -> Example:
        part = bisect_right(self._ends, i)
        return self.parts[part][i - (self._ends[part - 1] if part else 0)]


AnyClips = Clips | JoinedClips
