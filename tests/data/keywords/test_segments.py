"""Made-up streams: every word lies where it is said to lie, and what is said in talk is known."""

import numpy as np
import torch

from kws_s5.data.keywords.segments import Segments, Talk, Word

RATE = 1000.0
NOISE = 0.05


def tone(seconds: float, hz: float) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def word(target: int, hz: float) -> Word:
    """0.4 s of sound in the middle of a second of silence."""
    x = np.zeros(1000, np.float32)
    x[300:700] = tone(0.4, hz)
    return Word(x, target, 0.3, 0.7)


def talk(said: tuple = (), places: tuple = ()) -> Talk:
    noise = np.random.default_rng(0).normal(0, NOISE, 4000)
    return Talk((noise * 32768).astype(np.int16), said, places)


def share_at(x: torch.Tensor, hz: float) -> float:
    """Of the power of x (L,) in 5 Hz around hz, over all its power."""
    spectrum = torch.fft.rfft(x).abs().square()
    frequency = torch.arange(len(spectrum)) * RATE / len(x)
    return float(spectrum[(frequency - hz).abs() < 5].sum() / spectrum.sum().clamp(min=1e-9))


def test_every_word_is_heard_where_it_is_said_to_be() -> None:
    segments = Segments([word(0, 100.0), word(1, 250.0)], [talk()], seconds=6.0, rate=RATE)
    streams = segments.draw(np.random.default_rng(1), 20)
    inside = [(row, k, start, end) for row, k, start, end in streams.words if end < 6.0]
    assert len(inside) > 20 and {k for _, k, _, _ in inside} == {0, 1}
    for row, k, start, end in inside:
        x = streams.x[row, round(start * RATE) + 10 : round(end * RATE) - 10]
        assert share_at(x, (100.0, 250.0)[k]) > 0.6
        assert share_at(x, (250.0, 100.0)[k]) < 0.2


def test_no_keyword_is_hidden_in_what_counts_as_background() -> None:
    segments = Segments([word(0, 100.0), word(1, 250.0)], [talk()], seconds=6.0, rate=RATE, background=[1])
    streams = segments.draw(np.random.default_rng(2), 20)
    for row, k, start, end in streams.words:
        assert k == 0  # other words are background
        streams.x[row, max(0, round(start * RATE) - 20) : round(end * RATE) + 20] = 0.0
    for x in streams.x:
        quiet = x[x.abs() > 0]
        assert len(quiet) < 1000 or share_at(quiet, 100.0) < 0.05


def test_keywords_said_in_talk_are_marked_where_they_come_to_lie() -> None:
    samples = np.zeros(4000)
    samples[2000:2300] = tone(0.3, 300.0)
    recording = Talk((samples * 32767).astype(np.int16), ((2.0, 2.3),))
    segments = Segments([word(0, 100.0)], [recording], seconds=6.0, rate=RATE)
    streams = segments.draw(np.random.default_rng(3), 30)
    assert streams.unsure
    marked = torch.zeros_like(streams.x)
    for row, start, end in streams.unsure:
        marked[row, max(0, round(start * RATE) - 2) : round(end * RATE) + 2] = 1.0
    for row, x in enumerate(streams.x * (1 - marked)):
        others = [(s, e) for r, _, s, e in streams.words if r == row]
        for s, e in others:
            x[max(0, round(s * RATE) - 2) : round(e * RATE) + 2] = 0.0
        assert float(x.square().sum()) < 0.02 * float(streams.x[row].square().sum() + 1)


def test_hard_places_come_up_more_often() -> None:
    samples = np.zeros(20_000)
    samples[15_000:15_100] = tone(0.1, 300.0)
    segments = Segments([word(0, 100.0)], [Talk((samples * 32767).astype(np.int16))], seconds=6.0, rate=RATE)

    def seen() -> float:
        x = segments.draw(np.random.default_rng(4), 60).x
        return sum(share_at(piece, 300.0) > 0.5 for row in x for piece in row.split(100))

    before = seen()
    segments.hard = [(0, 15.1)]
    assert seen() > 2 * before


def test_the_same_generator_gives_the_same_streams() -> None:
    segments = Segments([word(0, 100.0)], [talk(places=((0.5, 0.8),))], seconds=3.0, rate=RATE)
    a, b = (segments.draw(np.random.default_rng(5), 4) for _ in range(2))
    assert torch.equal(a.x, b.x) and a.words == b.words and a.unsure == b.unsure


def test_streams_of_words_alone_need_no_talk() -> None:
    streams = Segments([word(0, 100.0)], [], seconds=3.0, rate=RATE).draw(np.random.default_rng(6), 4)
    assert streams.words and not streams.unsure
