"""A long synthetic recording with words at known times: what listening is tried and tested on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kws_s5.audio.resample import resample
from kws_s5.data.synthetic.espeak import ACCENTS, Utterance, Voice, speak_all
from kws_s5.data.synthetic.sound import coloured_noise, in_room, rms, room, trim
from kws_s5.data.synthetic.voices import MIN_VOICES, draw_voices
from kws_s5.errors import UserError


@dataclass(frozen=True)
class SpokenWord:
    """A word and where it is heard, in seconds from the start of the recording."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class SpokenStream:
    """A recording, and all that is said in it, in order."""

    waveform: np.ndarray  # (L,) float32 in [-1, 1]
    rate: int  # Hz
    words: tuple[SpokenWord, ...]


def synthesise_stream(
    words: Sequence[tuple[str, float]],
    *,
    seconds: float,
    rate: int = 16000,
    seed: int = 0,
    snr: float = 20.0,
    voices: Sequence[Voice] = (),
    reverb: bool = True,
) -> SpokenStream:
    """Speaks ``words``, pairs of (word, start in seconds), over pink noise.

    Args:
        seconds: length of the recording.
        snr: dB between each word and the noise; infinity: no noise.
        voices: whose turn it is, in rotation; empty: a speaker drawn for each word.

    Raises:
        UserError: a word does not fit before the next one or the end.
    """
    rng = np.random.default_rng([seed, 4])
    ordered = sorted(words, key=lambda pair: pair[1])
    turns = voices or draw_voices(max(MIN_VOICES, min(len(words), 40)), ACCENTS, seed)
    spoken, voice_rate = speak_all([Utterance(w, turns[i % len(turns)]) for i, (w, _) in enumerate(ordered)], seed=seed)
    level = 0.06  # rms of every word: about what a microphone gives
    waveform, heard, free = np.zeros(round(seconds * rate), np.float32), [], 0
    for (word, start), x in zip(ordered, spoken, strict=True):
        speech = trim(resample(x, voice_rate, rate))
        begin = round(start * rate)
        if begin < free or begin + len(speech) > len(waveform):
            raise UserError(f"{word!r} at {start} s takes {len(speech) / rate:.2f} s and does not fit: leave more time")
        free = begin + len(speech)
        waveform[begin:free] = speech * (level / rms(speech)) if len(speech) else speech
        heard.append(SpokenWord(word, begin / rate, free / rate))
    if reverb:
        waveform = in_room(waveform, room(rate, rng))
    waveform = waveform + level * 10 ** (-snr / 20) * coloured_noise(len(waveform), rate, 1.0, rng)
    return SpokenStream(np.clip(waveform, -1, 1).astype(np.float32), rate, tuple(heard))
