"""A long recording made from clips, with every word at a known time: what streaming is measured on.

    background      recordings one after the other, with pauses
    with words      the same, cut to a few seconds each, with keyword clips between them in a random but fixed order
    over both       noise at a constant level, ``snr`` dB below the median level of the keyword clips

Everything is a function of (clips, background, rate, seed); blocks are made one by one, so hours need no memory.
Legend: L samples of a clip, l samples of a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset

from kws_s5.audio.files import SUFFIXES, audio_blocks, load_audio
from kws_s5.audio.resample import StreamResampler, decimate, resample
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN
from kws_s5.errors import UserError
from kws_s5.eval.noise import Noise, Pink
from kws_s5.eval.sources import folder_name
from kws_s5.listening.metrics import Occurrence

PAUSE = (0.4, 1.0)  # seconds between recordings, drawn evenly
AFTER_WORD = (1.0, 2.0)  # seconds: longer than the tolerance of a hit on both sides
CONTEXT = 3.0  # seconds of background between words
FADE = 0.01  # seconds at both ends of a clip: no clicks
AUDIBLE = 30.0  # dB below a clip's loudest 10 ms: a word's first and last moment
FRAME = 0.01  # seconds
LEVEL = 0.05  # rms of speech where no clip tells


@dataclass(frozen=True)
class Clip:
    """A recording and its word; "" for background."""

    waveform: np.ndarray  # (L,) float32
    rate: float  # Hz
    label: str = ""


@dataclass(frozen=True)
class Material:
    """What streams are made of."""

    words: tuple[Clip, ...]
    background: tuple[Clip | Path, ...]
    description: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StreamConditions:
    """At which rate, in which noise."""

    rate: float  # Hz
    how: str = "soxr"  # or decimate: how recordings of other rates get there
    snr: float | None = 30.0  # dB; None: no noise
    noise: Noise = field(default_factory=Pink)
    seed: int = 0


@dataclass(frozen=True)
class Block:
    """A piece of a stream, and the words that begin in it (seconds from the start of the stream)."""

    waveform: np.ndarray  # (l,) float32
    words: tuple[Occurrence, ...] = ()


def gather(dataset: Dataset, labels: Sequence[str], folder: str = "", *, description: str = "") -> Material:
    """Keyword clips of ``dataset``; background: the recordings below ``folder``, else its _unknown_ and _silence_.

    Raises:
        UserError: no keyword clip, or no recording in ``folder``.
    """
    clips = [_clip(dataset[i], labels) for i in range(len(dataset))]
    words = tuple(clip for clip in clips if clip.label not in (UNKNOWN, SILENCE))
    if not words:
        raise UserError(f"{description or 'data'}: holds no clip of a keyword")
    if folder:
        told = f"{len(words)} words of {description} in recordings of {folder_name(folder)}"
        return Material(words, recordings(folder), told)
    others = tuple(Clip(clip.waveform, clip.rate) for clip in clips if clip.label in (UNKNOWN, SILENCE))
    remark = (
        ""
        if others
        else "no background: false alarms are counted in noise alone; name recordings with --background DIR"
    )
    what = f"{len(others)} clips of other words and noise" if others else "noise"
    return Material(words, others, f"{len(words)} words of {description} in {what}", (remark,) if remark else ())


def recordings(folder: str | Path) -> tuple[Path, ...]:
    """All sound files below a folder, in order. Raises UserError when there are none."""
    root = Path(folder).expanduser()
    files = tuple(sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()))
    if not files:
        raise UserError(f"{folder}: holds no recordings to listen to; name a folder of sound without your keywords")
    return files


def background_stream(material: Material, conditions: StreamConditions) -> Iterator[Block]:
    """The background alone: whatever is reported here is a false alarm. A minute of noise where there is none."""
    mixer = _Mixer(material, conditions, 1)
    for source in material.background:
        for waveform in _sound(source, conditions):
            yield mixer.block(waveform)
        yield mixer.pause(*PAUSE)
    if not material.background:
        for _ in range(60):
            yield mixer.pause(1.0, 1.0)


def words_stream(material: Material, conditions: StreamConditions) -> Iterator[Block]:
    """Background with the words at known times."""
    mixer = _Mixer(material, conditions, 2)
    order = mixer.random.permutation(len(material.words))
    n_between = max(1, round(len(order) / max(len(material.background), 1)))
    places = mixer.random.permutation(len(material.background))
    yield mixer.pause(*AFTER_WORD)
    for i, k in enumerate(order):
        if i % n_between == 0 and len(places):
            source = material.background[places[(i // n_between) % len(places)]]
            yield mixer.block(_context(source, conditions, mixer.random))
            yield mixer.pause(*AFTER_WORD)
        clip = material.words[k]
        yield mixer.block(next(iter(_sound(clip, conditions))), clip.label)
        yield mixer.pause(*AFTER_WORD)


def word_bounds(waveform: np.ndarray, rate: float) -> tuple[float, float]:
    """Seconds at which the sound of a clip (L,) begins and ends: within 30 dB of its loudest 10 ms."""
    size = max(1, round(FRAME * rate))
    n = max(1, len(waveform) // size)
    power = (
        np.square(waveform[: n * size], dtype=np.float64).reshape(n, -1).mean(1)
        if len(waveform) >= size
        else np.ones(1)
    )
    heard = np.flatnonzero(power >= power.max() * 10 ** (-AUDIBLE / 10))
    return heard[0] * size / rate, min(len(waveform), (heard[-1] + 1) * size) / rate


class _Mixer:
    """Adds the noise and keeps the time."""

    def __init__(self, material: Material, conditions: StreamConditions, which: int) -> None:
        self.conditions = conditions
        self.random = np.random.default_rng([conditions.seed, which])
        self._noise_random = np.random.default_rng([conditions.seed, which, 1])
        powers = [float(np.mean(np.square(clip.waveform, dtype=np.float64))) for clip in material.words]
        level = float(np.sqrt(np.median(powers))) if powers else LEVEL
        self._noise_level = 0.0 if conditions.snr is None else (level or LEVEL) * 10 ** (-conditions.snr / 20)
        self._done = 0  # samples

    def block(self, waveform: np.ndarray, label: str = "") -> Block:
        """The next samples, ``label`` said in them."""
        rate, words = self.conditions.rate, ()
        if label:
            start, end = word_bounds(waveform, rate)
            words = (Occurrence(label, self._done / rate + start, self._done / rate + end),)
        mixed = waveform.astype(np.float32)
        if self._noise_level and len(mixed):
            noise = self.conditions.noise(len(mixed), rate, self._noise_random)
            loud = float(np.sqrt(np.mean(noise**2)))
            mixed = mixed + (noise * (self._noise_level / loud if loud else 0.0)).astype(np.float32)
        self._done += len(mixed)
        return Block(mixed, words)

    def pause(self, least: float, most: float) -> Block:
        """Noise only."""
        return self.block(np.zeros(round(self.random.uniform(least, most) * self.conditions.rate), np.float32))


def _clip(example, labels: Sequence[str]) -> Clip:
    return Clip(example.x[:, 0].numpy(), float(example.rate), labels[int(example.y)])


def _sound(source: Clip | Path, conditions: StreamConditions) -> Iterator[np.ndarray]:
    """A clip with its ends faded, or a file in blocks, at the stream's rate."""
    if isinstance(source, Clip):
        yield _faded(_at(source.waveform, source.rate, conditions), conditions.rate)
        return
    yield from _file(source, conditions)


def _file(path: Path, conditions: StreamConditions) -> Iterator[np.ndarray]:
    """Blocks of a file that join without a seam."""
    resampler, skip = None, 0
    for audio in audio_blocks(path, 20.0):
        if audio.rate == conditions.rate:
            yield audio.waveform
        elif _decimated(audio.rate, conditions):
            factor = round(audio.rate / conditions.rate)
            yield audio.waveform[skip::factor]
            skip = (skip - len(audio.waveform)) % factor
        else:
            resampler = resampler or StreamResampler(audio.rate, conditions.rate)
            yield resampler.push(audio.waveform)
    if resampler:
        yield resampler.push(np.zeros(0, np.float32), last=True)


def _context(source: Clip | Path, conditions: StreamConditions, random: np.random.Generator) -> np.ndarray:
    """Up to CONTEXT seconds from somewhere in it."""
    clip = source if isinstance(source, Clip) else load_audio(source)
    n = round(CONTEXT * clip.rate)
    start = int(random.integers(max(1, len(clip.waveform) - n + 1)))
    return _faded(_at(clip.waveform[start : start + n], clip.rate, conditions), conditions.rate)


def _at(waveform: np.ndarray, rate: float, conditions: StreamConditions) -> np.ndarray:
    if rate == conditions.rate:
        return waveform
    if _decimated(rate, conditions):
        return decimate(waveform, rate / conditions.rate)
    return resample(waveform, rate, conditions.rate)


def _decimated(rate: float, conditions: StreamConditions) -> bool:
    return conditions.how == "decimate" and rate > conditions.rate and not (rate / conditions.rate) % 1


def _faded(waveform: np.ndarray, rate: float) -> np.ndarray:
    n = min(round(FADE * rate), len(waveform) // 2)
    if not n:
        return waveform
    ramp = np.linspace(0, 1, n, dtype=np.float32)
    faded = waveform.copy()
    faded[:n] *= ramp
    faded[-n:] *= ramp[::-1]
    return faded
