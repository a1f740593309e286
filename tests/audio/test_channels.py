"""Several channels become one: by the mean of those that sound, and never by a sum that cancels."""

import numpy as np
import pytest
import soundfile

from kws_s5.audio.channels import Balance, downmix
from kws_s5.audio.files import audio_blocks, load_audio

RATE = 16000


def voice(seed: int = 0, n: int = 40_000) -> np.ndarray:
    return (0.2 * np.random.default_rng(seed).standard_normal(n)).clip(-1, 1).astype(np.float32)


def read(tmp_path, channels: list[np.ndarray]) -> list:
    """load_audio of a file, of an array, and of an array the other way round; the blocks of the file."""
    x = np.stack(channels, 1)
    soundfile.write(tmp_path / "a.wav", x, RATE, subtype="FLOAT")
    notes: list[str] = []
    blocks = np.concatenate([b.waveform for b in audio_blocks(tmp_path / "a.wav", 0.25, notes.append)])
    found = [load_audio(tmp_path / "a.wav"), load_audio(x, RATE), load_audio(np.ascontiguousarray(x.T), RATE)]
    assert all(np.allclose(audio.waveform, blocks, atol=1e-7) for audio in found)
    assert all(bool(audio.notes) == bool(notes) for audio in found)
    return [blocks, notes]


def test_the_weights_belong_to_the_channels_not_to_the_samples() -> None:
    x = np.array([[1, 10], [2, 20], [3, 30]], np.float32)
    assert downmix(x, [0.75, 0.25]).tolist() == [3.25, 6.5, 9.75]
    assert downmix(x).tolist() == [5.5, 11, 16.5] and downmix(x, [0, 1]).tolist() == [10, 20, 30]


@pytest.mark.parametrize("channels", [2, 3, 6, 8])
@pytest.mark.parametrize("where", [0, 1, -1])
def test_one_voice_among_silent_channels_keeps_its_level(tmp_path, channels: int, where: int) -> None:
    x = [np.zeros(40_000, np.float32) for _ in range(channels)]
    x[where] = voice()
    mixed, notes = read(tmp_path, x)
    assert np.allclose(mixed, voice(), atol=1e-6) and not notes


def test_hiss_and_a_constant_offset_are_no_voice(tmp_path) -> None:
    mixed, notes = read(tmp_path, [voice(), 0.001 * voice(1), np.full(40_000, 0.001, np.float32)])
    assert np.allclose(mixed, voice(), atol=1e-6) and not notes


@pytest.mark.parametrize("gain", [1.0, 0.9, 0.7])
@pytest.mark.parametrize("part", ["all", "second half"])
def test_opposite_phase_is_told_and_the_louder_channel_taken(tmp_path, gain: float, part: str) -> None:
    other = -gain * voice()
    if part == "second half":
        other[:20_000] *= -1
    mixed, notes = read(tmp_path, [other, voice()])
    assert len(notes) == 1 and any(np.array_equal(mixed, x) for x in ([voice()] if gain < 1 else [voice(), other]))
    assert (gain == 1 or "channel 2 alone" in notes[0]) and "\n" not in notes[0]


def test_two_speakers_one_after_the_other_are_both_heard(tmp_path) -> None:
    a, b = voice(), voice(1)
    a[20_000:], b[:20_000] = 0, 0
    mixed, notes = read(tmp_path, [a, 0.1 * b])
    assert np.allclose(mixed, 0.5 * (a + 0.1 * b), atol=1e-6) and not notes


def test_unlike_channels_are_averaged() -> None:
    for channels in (2, 6, 32):
        balance = Balance(channels)
        balance.push(np.stack([voice(c) for c in range(channels)], 1))
        assert not balance.cancels and np.allclose(balance.weights(), 1 / channels)
