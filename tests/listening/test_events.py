"""Scores become the right events, whatever the pieces they come in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.errors import UserError
from kws_s5.listening.events import EventFinder, SpotterConfig

RATE = 100.0
PLAIN = SpotterConfig(smoothing=0.0, settle=0.1, release=0.6, refractory=0.5, warmup=0.0)


def track(n: int, *bumps: tuple[int, float, float, float], words: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, words) with bumps (word, from, to, height), in seconds, and the frames' times."""
    times = np.arange(1, n + 1) / RATE
    scores = np.zeros((n, words))
    for word, start, end, height in bumps:
        inside = (times > start) & (times <= end)
        scores[inside, word] = height
    return scores, times


def find(scores, times, *, config=PLAIN, thresholds=(0.5, 0.5), cuts=()) -> list:
    finder = EventFinder(("a", "b"), thresholds, RATE, config)
    events = []
    for s, t in zip(np.split(scores, cuts), np.split(times, cuts), strict=True):
        events += finder.push(s, t)
    return events + finder.finish()


def test_one_excursion_is_one_event_however_long() -> None:
    (event,) = find(*track(500, (0, 1.0, 4.0, 0.8)))
    assert event.label == "a" and event.score == 0.8
    assert event.time == pytest.approx(1.11) and event.end == pytest.approx(1.01)  # opened at 1.01, settled
    assert 0.8 < event.start < 1.0


def test_a_short_peak_is_decided_when_it_falls() -> None:
    (event,) = find(*track(300, (1, 1.0, 1.03, 0.9)))
    assert event.label == "b" and event.time == pytest.approx(1.04)


def test_below_the_threshold_nothing_happens() -> None:
    assert find(*track(300, (0, 1.0, 2.0, 0.49))) == []
    assert [e.label for e in find(*track(300, (0, 1, 2, 0.6), (1, 1, 2, 0.6)), thresholds=(0.7, 0.5))] == ["b"]


def test_a_dip_that_does_not_reach_the_release_level_is_no_second_event() -> None:
    assert len(find(*track(500, (0, 1.0, 3.0, 0.8), (0, 2.0, 2.2, 0.35)))) == 1  # release at 0.3
    assert len(find(*track(500, (0, 1.0, 3.0, 0.8), (0, 2.0, 2.2, 0.25)))) == 2


def test_the_same_word_needs_the_refractory_time_another_does_not() -> None:
    again = [(0, 1.0, 1.05, 0.9), (0, 1.3, 1.35, 0.9), (0, 2.0, 2.05, 0.9)]
    assert [round(e.time, 2) for e in find(*track(300, *again))] == [1.06, 2.06]
    assert [e.label for e in find(*track(300, (0, 1.0, 1.05, 0.9), (1, 1.3, 1.35, 0.9)))] == ["a", "b"]


def test_words_that_compete_are_one_event_of_the_best() -> None:
    (event,) = find(*track(300, (0, 1.0, 1.5, 0.6), (1, 1.05, 1.5, 0.8)))
    assert event.label == "b" and event.score == 0.8 and event.time == pytest.approx(1.11)


def test_smoothing_is_the_mean_of_the_last_frames() -> None:
    config = SpotterConfig(smoothing=0.1, settle=0.1, warmup=0.0)
    assert find(*track(300, (0, 1.0, 1.04, 1.0)), config=config) == []  # 4 of 10 frames
    (event,) = find(*track(300, (0, 1.0, 1.07, 1.0)), config=config)
    assert event.score == pytest.approx(0.7)


def test_the_first_moments_of_a_stream_open_nothing() -> None:
    config = SpotterConfig(smoothing=0.0, warmup=0.2)
    assert find(*track(300, (0, 0.0, 0.15, 0.9)), config=config) == []
    (event,) = find(*track(300, (0, 0.0, 0.5, 0.9)), config=config)
    assert event.end == pytest.approx(0.2) and event.start == 0.0


def test_the_end_of_the_stream_decides_what_is_open() -> None:
    (event,) = find(*track(105, (0, 1.0, 2.0, 0.7)))
    assert event.time == pytest.approx(1.01)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000), smoothing=st.sampled_from([0.0, 0.05]))
def test_events_do_not_depend_on_the_chunks_or_on_a_saved_state(data, seed, smoothing) -> None:
    random = np.random.default_rng(seed)
    scores = np.repeat(random.random((40, 2)), random.integers(1, 25), axis=0)
    times = np.arange(1, len(scores) + 1) / RATE
    cuts = sorted(data.draw(st.lists(st.integers(0, len(scores)), max_size=10)))
    config = SpotterConfig(smoothing=smoothing)
    whole = find(scores, times, config=config)
    assert whole and find(scores, times, config=config, cuts=cuts) == whole
    events, state = [], EventFinder(("a", "b"), (0.5, 0.5), RATE, config).state()
    shapes = {name: value.shape for name, value in state.items()}
    for s, t in zip(np.split(scores, cuts), np.split(times, cuts), strict=True):
        finder = EventFinder(("a", "b"), (0.5, 0.5), RATE, config)
        finder.restore(state)
        events += finder.push(s, t)
        state = finder.state()
        assert {name: value.shape for name, value in state.items()} == shapes
    assert events + finder.finish() == whole


def test_settings_out_of_range_are_named() -> None:
    for field, value in [("threshold", 0.0), ("release", 1.5), ("settle", -1.0), ("smoothing", 1e9)]:
        with pytest.raises(UserError, match=field):
            SpotterConfig(**{field: value})
