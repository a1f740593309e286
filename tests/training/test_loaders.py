"""Batches are a function of (seed, epoch): every clip once, entered again at any batch, shared out over processes."""

from collections import Counter

import numpy as np
import pytest

from kws_s5.training.loaders import EpochLoader, Shard, TrainBatches, classes_of


def batches_of(epoch: int = 0, start: int = 0, **options) -> list[list[int]]:
    batches = TrainBatches(**{"n": 103, "batch_size": 10, "seed": 5, **options})
    batches.set_epoch(epoch, start=start)
    return list(batches)


def test_an_epoch_has_every_clip_at_most_once_in_full_batches() -> None:
    batches = batches_of()
    assert [len(b) for b in batches] == [10] * 10
    assert max(Counter(i for b in batches for i in b).values()) == 1


def test_epochs_and_seeds_differ_and_repeat() -> None:
    assert batches_of(3) == batches_of(3) != batches_of(4)
    assert batches_of(3) != batches_of(3, seed=6)


@pytest.mark.parametrize("start", range(11))
def test_an_epoch_can_be_entered_at_any_batch(start: int) -> None:
    assert batches_of(2, start=start) == batches_of(2)[start:]


def test_length_is_what_is_left_of_the_epoch() -> None:
    batches = TrainBatches(103, batch_size=10, seed=0)
    batches.set_epoch(1, start=4)
    assert len(batches) == len(list(batches)) == 6 and batches.n_batches == 10


def test_two_processes_see_what_one_with_the_double_batch_sees() -> None:
    together = batches_of(1, batch_size=20)
    shares = [batches_of(1, rank=rank, world_size=2) for rank in range(2)]
    assert [sorted(a + b) for a, b in zip(*shares, strict=True)] == [sorted(b) for b in together]


def test_evaluation_shards_hold_every_clip_once_in_all() -> None:
    shards = [Shard(11, batch_size=2, rank=rank, world_size=3) for rank in range(3)]
    assert sorted(i for shard in shards for batch in shard for i in batch) == list(range(11))
    assert [len(list(shard)) for shard in shards] == [len(shard) for shard in shards]


@pytest.mark.parametrize("world_size", [1, 3])
def test_fewer_clips_than_a_batch_still_train(world_size: int) -> None:
    assert [len(b) for b in batches_of(n=5, batch_size=64, world_size=world_size)] == [5 // world_size]


def test_balanced_epochs_draw_all_classes_equally_and_repeat_only_when_used_up() -> None:
    classes = [0] * 80 + [1] * 15 + [2] * 5
    batches = batches_of(n=100, batch_size=10, classes=classes)
    drawn = [i for b in batches for i in b]
    per_class = Counter(classes[i] for i in drawn)
    assert max(per_class.values()) - min(per_class.values()) <= 1
    repeats = Counter(drawn)
    assert max(repeats[i] for i in range(80)) == 1
    assert {repeats[i] for i in range(95, 100)} <= {6, 7}
    assert batches_of(n=100, classes=classes) != batches_of(1, n=100, classes=classes)


def test_classes_are_taken_from_the_data(splits) -> None:
    assert np.array_equal(classes_of(splits.train), [i % 3 for i in range(30)])


def test_the_loader_tells_the_data_which_epoch_it_is(splits) -> None:
    loader = EpochLoader(splits.train, TrainBatches(30, batch_size=7, seed=0))
    loader.set_epoch(1)
    first = next(iter(loader))
    loader.set_epoch(2)
    assert splits.train.epoch == 2
    assert not np.array_equal(first.x, next(iter(loader)).x)
    loader.set_epoch(1)
    again = next(iter(loader))
    assert np.array_equal(first.x, again.x) and len(loader) == 4


def test_worker_processes_give_the_same_batches(splits) -> None:
    def epoch(n_workers: int) -> list[np.ndarray]:
        loader = EpochLoader(splits.train, TrainBatches(30, batch_size=7, seed=0), n_workers=n_workers)
        loader.set_epoch(3, start=1)
        return [batch.x.numpy() for batch in loader]

    assert all(np.array_equal(a, b) for a, b in zip(epoch(0), epoch(1), strict=True))
