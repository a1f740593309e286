"""The loss of a stream falls for what a spotter should do, and for nothing else."""

import pytest
import torch

from kws_s5.data.keywords.segments import Streams
from kws_s5.training.stream_loss import stream_loss

RATE, F = 100.0, 300
KEYWORDS, UNKNOWN = [0, 1], 2


def logits(*, word: int = UNKNOWN, first: float = 0.0, last: float = 0.0) -> torch.Tensor:
    """Sure of UNKNOWN in all of three seconds, but of ``word`` between two moments."""
    x = torch.full((1, F, 3), -5.0)
    x[..., UNKNOWN] = 5.0
    frames = slice(round(first * RATE), round(last * RATE))
    x[:, frames, UNKNOWN] = -5.0
    x[:, frames, word] = 5.0
    return x


def loss(x: torch.Tensor, words: tuple = ((0, 0, 1.0, 1.5),), unsure: tuple = ()) -> float:
    streams = Streams(torch.zeros(1, 300), list(words), list(unsure))
    return float(stream_loss(x, streams, KEYWORDS, frame_rate=RATE, background_weight=0.2))


def test_a_word_may_be_decided_once_anywhere_from_its_middle_to_shortly_behind_its_end() -> None:
    early, late = loss(logits(word=0, first=1.3, last=1.45)), loss(logits(word=0, first=1.7, last=1.84))
    assert early == pytest.approx(late, abs=1e-3)
    assert early < 0.05


@pytest.mark.parametrize(("first", "last"), [(0.3, 0.45), (2.3, 2.45), (1.0, 1.05)])
def test_a_decision_elsewhere_does_not_count(first: float, last: float) -> None:
    assert loss(logits(word=0, first=first, last=last)) > 5.0


def test_the_wrong_word_and_a_word_on_background_cost() -> None:
    right = loss(logits(word=0, first=1.3, last=1.5))
    wrong = logits(word=0, first=1.3, last=1.5)
    wrong[:, 160:170] = logits(word=1, first=0.0, last=3.0)[:, 160:170]
    alarm = logits(word=0, first=1.3, last=1.5)
    alarm[:, 20:30] = logits(word=1, first=0.0, last=3.0)[:, 20:30]
    assert loss(wrong) > right + 1.0
    assert loss(alarm) > right + 1.0


def test_what_is_said_in_talk_is_neither_word_nor_background() -> None:
    quiet = loss(logits(word=0, first=1.3, last=1.5), unsure=((0, 2.2, 2.4),))
    fired = logits(word=0, first=1.3, last=1.5)
    fired[:, 230:250] = logits(word=1, first=0.0, last=3.0)[:, 230:250]
    assert loss(fired, unsure=((0, 2.2, 2.4),)) == pytest.approx(quiet, abs=1e-2)
    assert loss(fired) > quiet + 1.0


def test_a_word_that_the_stream_ends_before_is_not_asked_for() -> None:
    assert loss(logits(), words=((0, 0, 2.5, 2.95),)) < 0.01


def test_gradients_reach_the_word_and_the_background() -> None:
    x = torch.zeros(1, F, 3, requires_grad=True)
    streams = Streams(torch.zeros(1, 300), [(0, 0, 1.0, 1.5)])
    stream_loss(x, streams, KEYWORDS, frame_rate=RATE, background_weight=0.2).backward()
    assert x.grad[0, 125:185, 0].min() < 0 < x.grad[0, 20, 0]
    assert x.grad.isfinite().all()
