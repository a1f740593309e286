"""A recording and what a model makes of it: the numbers behind the page, without any widget.

    study = examine(bundle, load_clip(path, max_seconds=60), DEGRADATIONS["8 kHz telephone"])

Legend: L samples, f frames, K keywords.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from kws_s5.audio.files import Audio, audio_blocks
from kws_s5.audio.resample import resample
from kws_s5.audio.samples import shown
from kws_s5.bundle import Bundle
from kws_s5.demo.degrade import AS_RECORDED, Degradation
from kws_s5.demo.pictures import Picture, front_view, spectrogram
from kws_s5.errors import UserError
from kws_s5.listening.events import Event, SpotterConfig
from kws_s5.listening.spotter import KeywordSpotter, keywords_of, thresholds_of

BLOCK = 2.0  # seconds


@dataclass(frozen=True)
class Hearing:
    """What a model said about a sound."""

    title: str
    explanation: str
    keywords: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()
    times: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (f,) seconds
    scores: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (f, K) probabilities
    events: tuple[Event, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Study:
    """A sound, seen and heard."""

    audio: Audio  # as the model gets it
    source_rate: float  # Hz, of the recording
    channels: int  # of the recording
    spectrogram: Picture
    front: Picture | None
    hearings: tuple[Hearing, ...]  # the first one: with the time step adapted to the rate
    remark: str = ""


def load_clip(path: str | Path, *, max_seconds: float) -> Audio:
    """A recording of at most ``max_seconds``; longer ones are refused without being held in memory.

    Raises UserError; its line names the file, never its folder.
    """
    waveforms, seconds = [], 0.0
    try:
        for block in audio_blocks(path, BLOCK):
            seconds += block.seconds
            if seconds > max_seconds:
                raise UserError(
                    f"{shown(path)}: longer than {max_seconds:g} s, which is all that this page takes; "
                    "cut it, or use kws-scan for recordings of any length"
                )
            waveforms.append(block.waveform)
            rate, channels = block.rate, block.channels
    except UserError as error:
        raise UserError(str(error).replace(shown(path), shown(Path(path).name))) from None
    return Audio(np.concatenate(waveforms), rate, channels)


def scaled_thresholds(bundle: Bundle, factor: float) -> dict[str, float]:
    """Word -> ``factor`` times the model's own threshold, at most 1."""
    words = keywords_of(bundle)
    own = thresholds_of(bundle, words, None, SpotterConfig())
    return {word: float(np.clip(factor * value, 0.01, 1.0)) for word, value in zip(words, own, strict=True)}


def examine(bundle: Bundle, audio: Audio, degradation: Degradation, *, factor: float = 1.0) -> Study:
    """Everything the page shows; ``factor`` scales the model's thresholds."""
    given, hear = degradation.apply(audio), partial(_hear, bundle, thresholds=scaled_thresholds(bundle, factor))
    hearings = [hear(given, title=_rescaled(bundle, given), explanation="the same weights; the step follows the rate")]
    if given.rate != bundle.rate:
        told = f"the model takes it for {_khz(bundle.rate)}: too {'fast' if given.rate < bundle.rate else 'slow'}"
        hearings.append(hear(given, told=bundle.rate, title="Step left as it was", explanation=told))
        back = Audio(resample(given.waveform, given.rate, bundle.rate), bundle.rate)
        hearings.append(
            hear(
                back,
                title=f"Resampled to {_khz(bundle.rate)} first",
                explanation="the usual way: a resampler in front of the model",
            )
        )
    try:
        front = front_view(bundle, given.waveform, given.rate)
    except UserError:
        front = None  # the first hearing says why
    return Study(given, audio.rate, audio.channels, spectrogram(given.waveform, given.rate), front, tuple(hearings))


def is_degraded(degradation: Degradation) -> bool:
    """Whether the sound differs from what was recorded."""
    return degradation.name != AS_RECORDED


def _hear(
    bundle: Bundle,
    audio: Audio,
    *,
    thresholds: dict[str, float],
    told: float = 0.0,
    title: str = "",
    explanation: str = "",
) -> Hearing:
    """Scores and events of a sound; times are those of the sound even where the model is ``told`` another rate (Hz).

    A model's refusal becomes ``error``.
    """
    rate = told or audio.rate
    try:
        spotter = KeywordSpotter(bundle, rate, thresholds=thresholds)
        size, columns = max(1, round(BLOCK * rate)), [bundle.labels.index(word) for word in spotter.keywords]
        events, times, scores = [], [], []
        for start in range(0, len(audio.waveform), size):
            found, frames = spotter.push_frames(audio.waveform[start : start + size])
            events += found
            times.append(frames.times)
            scores.append(frames.posteriors[0][:, columns])
        events += spotter.finish()
    except UserError as error:
        return Hearing(title, explanation, error=str(error))
    stretch = rate / audio.rate
    events = [e._replace(start=e.start * stretch, end=e.end * stretch, time=e.time * stretch) for e in events]
    return Hearing(
        title,
        explanation,
        spotter.keywords,
        tuple(spotter.thresholds),
        np.concatenate(times) * stretch,
        np.concatenate(scores),
        tuple(events),
    )


def _rescaled(bundle: Bundle, given: Audio) -> str:
    if given.rate == bundle.rate:
        return "At the training rate"
    return f"Step rescaled, Δ × {bundle.rate / given.rate:.4g}"


def _khz(rate: float) -> str:
    return f"{rate / 1000:g} kHz"
