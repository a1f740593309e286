"""The shipped model: small, complete, and it hears the words that the demo's examples say."""

from pathlib import Path

import numpy as np
import pytest

import kws_s5
from kws_s5.audio.files import load_audio, save_wav
from kws_s5.audio.resample import resample
from kws_s5.bundle import find, shipped
from kws_s5.data.keywords.speech_commands import COMMANDS_10, LABELS_12
from kws_s5.eval.calibrate_cli import main as calibrate

EXAMPLES = Path(__file__).parents[1] / "demo" / "examples"


@pytest.fixture(scope="module")
def model() -> kws_s5.Bundle:
    return kws_s5.load("commands12")


def test_it_is_small_and_says_where_it_comes_from(model: kws_s5.Bundle) -> None:
    assert shipped() == ["commands12"]
    assert find("commands12").stat().st_size <= 1_500_000
    assert sum(p.numel() for p in model.model.parameters()) <= 300_000
    assert model.labels == LABELS_12
    assert "Speech Commands" in model.note and "CC BY 4.0" in model.note


def test_its_file_names_no_folder_of_the_machine_it_was_trained_on(model: kws_s5.Bundle) -> None:
    assert not Path(model.config.data.root).is_absolute()
    assert (model.config.data.cache, model.config.training.out) == ("", "")


def test_it_finds_spoken_commands_in_a_recording_at_any_rate() -> None:
    sound = load_audio(EXAMPLES / "six_commands.flac")
    for rate in (8000, 16000, 44100):
        spotter = kws_s5.KeywordSpotter("commands12")
        events = spotter.push(resample(sound.waveform, sound.rate, rate), rate)
        words = {event.label for event in events}
        assert words <= set(COMMANDS_10)
        assert len(words) >= 3, (rate, words)


def test_silence_is_silence(model: kws_s5.Bundle) -> None:
    for rate in (8000, 48000):
        scores = model.classify(np.zeros(rate, np.float32), rate)
        assert max(scores, key=scores.get) == "_silence_"


def test_calibrating_it_writes_a_copy_and_leaves_the_package_as_it_is(tmp_path: Path, monkeypatch) -> None:
    for word, k in (("yes", 0), ("no", 1)):
        clip = load_audio(EXAMPLES / "six_commands.flac").waveform[:16000]
        save_wav(tmp_path / "words" / word / f"{k}.wav", clip, 16000)
    noise = np.random.default_rng(0).standard_normal(32000).astype(np.float32)
    save_wav(tmp_path / "talk" / "a.wav", 0.01 * noise, 16000)
    before = find("commands12").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert calibrate(["commands12", "--data", "words", "--background", "talk", "--snr"]) == 0
    assert find("commands12").read_bytes() == before
    assert kws_s5.load("commands12-calibrated.safetensors").thresholds
