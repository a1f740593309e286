"""One visitor's microphone."""

import numpy as np
import pytest

from kws_s5.demo.live import LOG, MAX_CHUNK, SHOWN, SILENT, Live
from kws_s5.errors import UserError

WORDS = [("low", 0.5), ("high", 1.5)]


def push_all(live, waveform, rate, size):
    events = []
    for start in range(0, len(waveform), size):
        events += live.push(rate, waveform[start : start + size])
    return events + live.finish()


def pcm(waveform):
    return np.round(waveform * 32767).astype(np.int16)


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2])
def test_words_are_heard_at_the_browsers_rate_in_chunks_of_varying_length(tone_bundle, tone_stream, rate, channels):
    sound = pcm(tone_stream(WORDS, seconds=2.5, rate=rate))
    sound = sound if channels == 1 else np.stack([sound, sound], 1)
    rng, live, start, events = np.random.default_rng(0), Live(tone_bundle), 0, []
    while start < len(sound):
        size = int(rng.integers(1, rate // 2))
        events += live.push(rate, sound[start : start + size])
        start += size
    events += live.finish()
    assert [event.label for event in events] == ["low", "high"]
    assert [event.label for event in live.log] == ["high", "low"]


def test_another_rate_starts_a_new_stream_and_keeps_the_log(tone_bundle, tone_stream):
    live = Live(tone_bundle)
    live.push(16000, tone_stream([("low", 0.3)], seconds=1.5))
    live.push(48000, tone_stream([("high", 0.3)], seconds=1.5, rate=48000))
    assert live.spotter.rate == 48000
    assert [event.label for event in live.log] == ["high", "low"]


def test_after_the_microphone_was_stopped_time_begins_again(tone_bundle, tone_stream):
    live = Live(tone_bundle)
    push_all(live, tone_stream([("low", 0.3)], seconds=3), 16000, 4000)
    live.push(16000, tone_stream([("high", 0.3)], seconds=1))
    assert live.spotter.seconds == 1
    assert live.n_events == 2


def test_what_is_kept_does_not_grow(tone_bundle, tone_stream):
    live = Live(tone_bundle)
    second = tone_stream([("low", 0.3)], seconds=1)
    for _ in range(2 * LOG):
        live.push(16000, second)
    times, scores = live.history()
    assert len(live.log) == LOG
    assert len(times) == len(scores) <= SHOWN * 100 + 1
    assert times[-1] - times[0] <= SHOWN


def test_level_is_that_of_the_last_chunk_and_silence_is_no_error(tone_bundle):
    live = Live(tone_bundle)
    live.push(16000, np.zeros(1600, np.int16))
    assert live.level == live.peak == SILENT
    live.push(16000, (0.5 * np.sin(np.arange(16000) * 0.1)).astype(np.float32))
    assert live.level == pytest.approx(-9.03, abs=0.1)
    assert live.peak == pytest.approx(-6.02, abs=0.1)
    live.push(16000, np.zeros(0, np.int16))


def test_a_piece_that_no_microphone_sends_is_refused(tone_bundle):
    live = Live(tone_bundle)
    with pytest.raises(UserError, match="at once"):
        live.push(8000, np.zeros(round(MAX_CHUNK * 8000) + 1, np.int16))
    with pytest.raises(UserError):
        live.push(100, np.zeros(10, np.int16))
