"""Spliced clips are pieces of two clips of the batch, are called _unknown_, and touch nothing else."""

import numpy as np
import torch

from kws_s5.config import AugmentConfig
from kws_s5.data.batch import Batch
from kws_s5.training.augment import augment
from kws_s5.training.augment_splice import CUT, choose, splice

LABELS = ("yes", "no", "_unknown_", "_silence_")
L, RATE = 1000, 1000.0


def clips(classes: list[int], rates: list[float] | None = None) -> Batch:
    """Row i holds a burst of samples in [i + 1, i + 1.5) in its middle, so that every sample tells where it is from."""
    N = len(classes)
    x = torch.zeros(N, L)
    x[:, 300:700] = torch.arange(1, N + 1)[:, None] + torch.linspace(0, 0.5, 401)[:-1]
    return Batch(x[..., None], torch.full((N,), L), torch.tensor(classes), torch.tensor(rates or [RATE] * N).double())


def spliced(b: Batch, probability: float = 1.0, seed: int = 0, labels: tuple[str, ...] = LABELS) -> Batch:
    return augment(b, AugmentConfig(splice=probability), torch.Generator().manual_seed(seed), labels=labels)


def test_a_spliced_clip_is_the_end_of_itself_and_the_beginning_of_another() -> None:
    b = clips([0] * 6)
    x = splice(b.x[..., 0], b.lengths, b.rates, np.array([1]), np.array([4]), np.array([[0.5, 0.25]]))
    assert torch.equal(x[[0, 2, 3, 4, 5]], b.x[[0, 2, 3, 4, 5], :, 0])
    own, other = b.x[1, :, 0], b.x[4, :, 0]
    start = next(k for k in range(L) if float((own[: k + 1] ** 2).sum()) >= 0.5 * float((own**2).sum()))
    stop = next(k for k in range(L) if float((other[: k + 1] ** 2).sum()) >= 0.25 * float((other**2).sum()))
    n = L - start
    assert torch.equal(x[1, 6 : n - 6], own[start + 6 : -6])  # but for the fades
    assert torch.equal(x[1, n + 6 : n + 300 + 90], other[6 : 300 + 90]) and 390 < stop < 420
    assert torch.all(x[1, n + stop + 2 :] == 0)


def test_pieces_lack_a_third_of_the_word_and_pass_into_each_other_without_a_click() -> None:
    b = clips([0, 1])
    b.x[:, :, 0] = torch.sin(2 * torch.pi * 5 * torch.arange(L) / RATE)  # no silence: both pieces meet
    x = splice(b.x[..., 0], b.lengths, b.rates, np.array([0]), np.array([1]), np.array([[CUT[1], CUT[1]]]))
    assert float(x[0].diff().abs().max()) < 0.25


def test_spliced_clips_are_unknown_and_others_keep_their_class() -> None:
    b = clips([0, 1, 0, 1, 2, 0, 1, 0])
    out = spliced(b, 0.5)
    changed = (out.x != b.x).flatten(1).any(1)
    assert 0 < int(changed.sum()) < 8
    assert torch.all(out.y[changed] == 2) and torch.equal(out.y[~changed], b.y[~changed])
    assert torch.equal(b.y, torch.tensor([0, 1, 0, 1, 2, 0, 1, 0]))  # the batch given is as it was


def test_silence_and_clips_of_other_rates_take_no_part() -> None:
    rng = np.random.default_rng(0)
    y, rates = torch.tensor([0, 3, 1, 0, 3, 1]), torch.tensor([1.0, 1.0, 2.0, 1.0, 2.0, 2.0])
    for _ in range(50):
        rows, others = choose(y, rates, LABELS, 0.8, rng)
        assert not np.isin(np.r_[rows, others], [1, 4]).any()
        assert torch.equal(rates[rows], rates[others])


def test_without_the_class_nothing_is_spliced() -> None:
    b = clips([0, 1, 0])
    assert torch.equal(spliced(b, labels=("yes", "no")).x, b.x)


def test_short_and_silent_clips_are_spliced_without_error() -> None:
    b = clips([0, 1, 0, 1])
    b.x[0] = 0.0
    b.x[1, 1:] = 0.0
    b.lengths[1] = 1
    for seed in range(10):
        out = spliced(b, seed=seed)
        assert torch.all(out.x[1, 1:] == 0) and out.x.isfinite().all()
