"""Which clips form a batch: a function of (seed, epoch) alone, so that any epoch can be entered again at any batch.

Legend: n clips, N batch size of one process, W processes. Training batch i of an epoch is a slice of N W clips of the
shuffled order, of which every process takes its share: W processes see what one process with batches of N W sees.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import DataLoader, Dataset

from kws_s5.data.batch import Batch, collate


class TrainBatches:
    """Lists of clip indices for one process: shuffled, every clip at most once an epoch (unless balanced).

    The last clips that do not fill a batch are left out; another epoch leaves out others.
    """

    def __init__(
        self,
        n: int,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        classes: Sequence[int] | None = None,
    ) -> None:
        """classes: (n,) class of every clip; given: all classes are drawn equally often (class-balanced sampling)."""
        self.n, self.seed, self.rank, self.world_size = n, seed, rank, world_size
        self.batch_size = max(1, min(batch_size, n // world_size))  # a folder smaller than one batch still trains
        self.classes = None if classes is None else np.asarray(classes)
        self.epoch, self.start = 0, 0

    @property
    def n_batches(self) -> int:
        """Of a whole epoch."""
        return self.n // (self.batch_size * self.world_size)

    def __len__(self) -> int:
        return self.n_batches - self.start

    def set_epoch(self, epoch: int, *, start: int = 0) -> None:
        """Chooses the epoch, and the batch to begin with (an interrupted epoch goes on where it was)."""
        self.epoch, self.start = epoch, start

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order(np.random.default_rng([self.seed, self.epoch]))
        share = self.batch_size * self.world_size
        for batch in range(self.start, self.n_batches):
            together = order[batch * share : (batch + 1) * share]
            yield together[self.rank :: self.world_size].tolist()

    def _order(self, random: np.random.Generator) -> np.ndarray:
        if self.classes is None:
            return random.permutation(self.n)
        present = np.unique(self.classes)
        quotas = np.full(len(present), self.n // len(present))
        quotas[random.permutation(len(present))[: self.n % len(present)]] += 1
        drawn = [
            _cycled(np.flatnonzero(self.classes == k), quota, random) for k, quota in zip(present, quotas, strict=True)
        ]
        return random.permutation(np.concatenate(drawn))


class Shard:
    """Lists of clip indices for evaluation: in order, every clip exactly once over all processes."""

    def __init__(self, n: int, *, batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        self.indices = list(range(rank, n, world_size))
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for i in range(0, len(self.indices), self.batch_size):
            yield self.indices[i : i + self.batch_size]


class EpochLoader:
    """Batches of the current epoch, from where it is entered."""

    def __init__(self, dataset: Dataset, batches: TrainBatches, *, n_workers: int = 0) -> None:
        self.dataset, self.batches, self.n_workers = dataset, batches, n_workers

    @property
    def n_batches(self) -> int:
        """Of a whole epoch."""
        return self.batches.n_batches

    def set_epoch(self, epoch: int, *, start: int = 0) -> None:
        """Must be called before every epoch: order of clips and their random crops depend on it."""
        self.batches.set_epoch(epoch, start=start)
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        yield from loader(self.dataset, self.batches, n_workers=self.n_workers)  # worker processes start when needed


def loader(dataset: Dataset, batches: TrainBatches | Shard, *, n_workers: int = 0) -> DataLoader:
    """A DataLoader over lists of indices. Workers live for one epoch, so they see the data set's current epoch."""
    return DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=n_workers)


def classes_of(dataset: Dataset) -> np.ndarray:
    """(n,) class of every example: the data set's own ``targets`` where it has one, else read one by one."""
    known = getattr(dataset, "targets", None)
    return np.asarray(known if known is not None else [int(dataset[i].y) for i in range(len(dataset))])


def _cycled(clips: np.ndarray, quota: int, random: np.random.Generator) -> np.ndarray:
    """``quota`` of ``clips``: shuffled again each time they run out, so none is drawn twice before all were once."""
    rounds = -(-quota // len(clips))
    return np.concatenate([random.permutation(clips) for _ in range(rounds)])[:quota]
