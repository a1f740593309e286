"""Several sets of clips as one: recordings from different stores in one training."""

from collections.abc import Sequence

import numpy as np
from torch.utils.data import ConcatDataset

from kws_s5.data.keywords.clips import Clips


class JoinedClips(ConcatDataset):
    """The examples of ``parts``, one after the other; what can be asked of Clips can be asked of it."""

    def __init__(self, parts: Sequence[Clips]) -> None:
        super().__init__(parts)
        self.targets = np.concatenate([part.targets for part in parts])  # (n,) classes
        self.rates = np.concatenate([part.rates for part in parts])  # (n,) Hz
        self.lengths = np.concatenate([part.lengths for part in parts])  # (n,) samples

    @property
    def ids(self) -> list[str]:
        """What each example is, within its own folder."""
        return [id for part in self.datasets for id in part.ids]

    def set_epoch(self, epoch: int) -> None:
        """Chooses the random windows of ``epoch``."""
        for part in self.datasets:
            part.set_epoch(epoch)


AnyClips = Clips | JoinedClips
