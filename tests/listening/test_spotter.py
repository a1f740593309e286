"""KeywordSpotter finds each word once, at its time, at any rate, live and in files, from many threads."""

import threading

import numpy as np
import pytest
import torch

import kws_s5
from kws_s5.audio.files import save_wav
from kws_s5.errors import UserError
from kws_s5.listening.events import SpotterConfig
from kws_s5.listening.spotter import KeywordSpotter

WORDS = [("low", 1.0), ("high", 2.5), ("low", 4.0), ("low", 5.0)]


def chunks(x, size):
    return [x[i : i + size] for i in range(0, len(x), size)]


def heard(events):
    return [event.label for event in events]


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100, 48000])
def test_every_word_is_found_once_at_its_time_at_any_rate(tone_bundle, tone_stream, rate) -> None:
    x = tone_stream(WORDS, seconds=7, rate=rate)
    spotter, events = KeywordSpotter(tone_bundle), []
    for chunk in chunks((x * 32767).astype(np.int16), 777):
        events += spotter.push(chunk, rate)
    events += spotter.finish()
    assert heard(events) == [word for word, _ in WORDS]
    for event, (_, start) in zip(events, WORDS, strict=True):
        assert abs(event.start - start) < 0.15 and start < event.end <= start + 0.5 and event.time <= start + 0.6
        assert 0.5 <= event.score <= 1.0
    assert spotter.seconds == 7 and spotter.rate == rate


def test_chunks_and_blocks_do_not_change_the_events(tone_bundle, tone_stream) -> None:
    x = tone_stream(WORDS, seconds=7)
    whole = list(KeywordSpotter(tone_bundle).find(x, 16000))
    for size, block in [(160, 0.0), (501, 0.08), (40000, 0.0)]:
        spotter = KeywordSpotter(tone_bundle, 16000, block=block)
        events = [event for chunk in chunks(x, size) for event in spotter.push(chunk)] + spotter.finish()
        assert heard(events) == heard(whole)
        np.testing.assert_allclose([e[1:5] for e in events], [e[1:5] for e in whole], atol=1e-4)


def test_many_streams_report_as_each_alone(tone_bundle, tone_stream) -> None:
    streams = np.stack(
        [
            tone_stream([(w, s + 0.3 * n)], seconds=5, seed=n)
            for n, (w, s) in enumerate([("low", 1), ("high", 1), ("high", 2.5)])
        ]
    )
    spotter = KeywordSpotter(tone_bundle, 16000, n_streams=3)
    events = [e for i in range(0, streams.shape[1], 1600) for e in spotter.push(streams[:, i : i + 1600])]
    for n, row in enumerate(streams):
        alone = list(KeywordSpotter(tone_bundle).find(row, 16000))
        assert [(e.label, pytest.approx(e.time)) for e in alone] == [(e.label, e.time) for e in events if e.stream == n]
    assert sorted(e.stream for e in events) == [0, 1, 2]


def test_a_file_is_found_in_as_its_samples_are(tone_bundle, tone_stream, tmp_path) -> None:
    x = tone_stream(WORDS, seconds=9.5)
    save_wav(tmp_path / "a.wav", x, 16000)
    spotter = KeywordSpotter(tone_bundle, 8000)  # a live stream of its own is not disturbed
    spotter.push(np.zeros(100, np.float32))
    assert heard(spotter.find(tmp_path / "a.wav")) == heard(spotter.find(x, 16000)) == [w for w, _ in WORDS]
    assert spotter.seconds == 100 / 8000 and spotter.rate == 8000


def test_a_model_file_is_enough(tone_bundle, tone_stream, tmp_path) -> None:
    tone_bundle.save(tmp_path / "model.safetensors")
    spotter = kws_s5.KeywordSpotter(tmp_path / "model.safetensors")
    assert heard(spotter.find(tone_stream(WORDS[:1], seconds=2), 16000)) == ["low"]


def test_a_saved_state_goes_on_with_the_decision_it_was_making(tone_bundle, tone_stream) -> None:
    x = tone_stream(WORDS, seconds=7)
    whole = list(KeywordSpotter(tone_bundle).find(x, 16000))
    for cut in (round(1.22 * 16000), 20001, 70000):  # the first one within a decision
        first, second = KeywordSpotter(tone_bundle, 16000), KeywordSpotter(tone_bundle)
        events = first.push(x[:cut])
        second.restore(first.state())
        events += second.push(x[cut:]) + second.finish()
        assert [(e.label, pytest.approx(e.time)) for e in whole] == [(e.label, e.time) for e in events]
    assert all(isinstance(value, torch.Tensor) for value in first.state().values())
    with pytest.raises(UserError, match="other words or settings"):
        KeywordSpotter(tone_bundle, keywords=["low"]).restore(first.state())
    with pytest.raises(UserError, match="nothing was heard"):
        KeywordSpotter(tone_bundle).state()


def test_reset_forgets_and_allows_another_rate(tone_bundle, tone_stream) -> None:
    spotter = KeywordSpotter(tone_bundle)
    spotter.push(tone_stream([("low", 0.1)], seconds=0.5)[:5000], 16000)  # in the middle of a word
    with pytest.raises(UserError, match="reset"):
        spotter.push(np.zeros(10, np.float32), 8000)
    spotter.reset(8000)
    assert spotter.push(tone_stream([], seconds=2, rate=8000), 8000) == [] and spotter.seconds == 2
    with pytest.raises(UserError, match="without their rate"):
        KeywordSpotter(tone_bundle).push(np.zeros(10, np.float32))


def test_thresholds_come_from_the_call_the_model_or_the_default(tone_bundle) -> None:
    tone_bundle.thresholds = {"low": 0.9}
    assert KeywordSpotter(tone_bundle).thresholds == [0.5, 0.9]  # high, low
    assert KeywordSpotter(tone_bundle, thresholds={"high": 0.7}).thresholds == [0.7, 0.9]
    assert KeywordSpotter(tone_bundle, thresholds=0.6).thresholds == [0.6, 0.6]
    assert KeywordSpotter(tone_bundle, config=SpotterConfig(threshold=0.4)).thresholds == [0.4, 0.9]
    for bad, words in [({"hi": 0.5}, "this model knows high, low"), (1.5, "must be in"), ({"low": "x"}, "must be in")]:
        with pytest.raises(UserError, match=words):
            KeywordSpotter(tone_bundle, thresholds=bad)


def test_only_the_chosen_keywords_are_reported(tone_bundle, tone_stream) -> None:
    x = tone_stream(WORDS, seconds=7)
    assert heard(KeywordSpotter(tone_bundle, keywords=["high"]).find(x, 16000)) == ["high"]
    with pytest.raises(UserError, match="'_silence_'"):
        KeywordSpotter(tone_bundle, keywords=["_silence_"])


def test_silence_and_noise_are_no_words(tone_bundle) -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(16000 * 20)
    for x in (np.zeros(16000 * 20), noise, np.zeros(0)):
        assert (
            list(KeywordSpotter(tone_bundle, thresholds=0.9).find(x.astype(np.float32), 16000)) == []
            if len(x)
            else KeywordSpotter(tone_bundle, 16000).push(x) == []
        )


def test_threads_may_share_a_spotter_and_a_model(tone_bundle, tone_stream) -> None:
    """One spotter pushed from four threads hears everything once; spotters of one model do not disturb each other."""
    x = tone_stream(WORDS, seconds=7)
    expected = [(e.label, round(e.time, 3)) for e in KeywordSpotter(tone_bundle).find(x, 16000)]
    own, errors, shared = {}, [], KeywordSpotter(tone_bundle, 16000)
    silence = np.zeros(1600, np.float32)

    def work(n: int) -> None:
        try:
            spotter, events = KeywordSpotter(tone_bundle), []
            for chunk in chunks(x, 900 + n):
                events += spotter.push(chunk, 16000)
                shared.push(silence)
            own[n] = [(e.label, round(e.time, 3)) for e in events + spotter.finish()]
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and all(own[n] == expected for n in range(4))
    pushes = sum(len(chunks(x, 900 + n)) for n in range(4))
    assert shared.seconds == pytest.approx(pushes * 0.1)
