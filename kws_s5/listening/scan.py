"""Recordings -> found words. Each file is read in blocks; several files run in processes of their own.

    for result in scan(files, options): ...         # in the order of the files, whatever the processes do

A file that cannot be read is a result with an error; the others are not held up by it.
"""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kws_s5.audio.files import audio_blocks, audio_info
from kws_s5.audio.level import Meter
from kws_s5.audio.samples import shown
from kws_s5.errors import UserError
from kws_s5.listening.events import Event, SpotterConfig
from kws_s5.listening.hits import HitSaver
from kws_s5.listening.spotter import KeywordSpotter, open_model
from kws_s5.processes import mapped, n_processors, report

BLOCK = 4.0  # seconds
LONGEST_NAME = 160  # bytes of a recording's name that files about it bear: their own parts have to fit too
WORTH = 300.0  # seconds of sound below which starting processes costs more than it saves
Progress = Callable[[float], None]  # told the seconds of sound heard so far, of all files


@dataclass(frozen=True)
class ScanOptions:
    """What to listen for, and how."""

    model: str
    """Also an exported one (.onnx), which needs no torch."""
    keywords: tuple[str, ...] = ()
    threshold: float | None = None
    """For all words; None: the model's own."""
    config: SpotterConfig = field(default_factory=SpotterConfig)
    hits: str = ""
    """Folder for wavs of what was found; empty: none."""
    margin: float = 0.0
    """Seconds of a saved hit around the word; 0: as long as the model's training clips."""


@dataclass(frozen=True)
class FileResult:
    """One recording."""

    file: str
    events: tuple[Event, ...] = ()
    seconds: float = 0.0
    rate: float = 0.0  # Hz
    error: str = ""
    remark: str = ""
    hits: tuple[str, ...] = ()  # files written
    notes: tuple[str, ...] = ()  # on the recording: its level, its channels, its header


def scan(
    files: Sequence[str | Path], options: ScanOptions, *, processes: int = 0, progress: Progress | None = None
) -> Iterator[FileResult]:
    """Results file by file. Raises UserError before the first one for a model or words that cannot be used.

    Args:
        processes: how many files at a time; 0: one for each core, where there is enough sound to be worth it.
    """
    spotter = spotter_of(options)  # mistakes show before any process starts
    lengths = [_seconds(file) for file in files]
    n = min(len(files), processes or n_processors() if sum(lengths) > WORTH or processes else 1)
    if n > 1:
        yield from _in_processes(files, options, n, progress)
        return
    before = 0.0
    for file, name, seconds in zip(files, different_names(files), lengths, strict=True):
        yield scan_file(file, spotter, options, name=name, progress=_shifted(progress, before))
        before += seconds


def total_seconds(files: Sequence[str | Path]) -> float:
    """Length of all readable files by their headers."""
    return sum(map(_seconds, files))


def spotter_of(options: ScanOptions) -> KeywordSpotter:
    """The spotter the options ask for."""
    return KeywordSpotter(
        open_model(options.model), keywords=options.keywords, thresholds=options.threshold, config=options.config
    )


def scan_file(
    file: str | Path, spotter: KeywordSpotter, options: ScanOptions, *, name: str = "", progress: Progress | None = None
) -> FileResult:
    """One file from start to end. A UserError about it becomes ``error``; the events found before it are kept.

    ``name``: of saved hits; empty: the file's.
    """
    events: list[Event] = []
    seconds, rate, error, saver = 0.0, 0.0, "", None
    notes: list[str] = []
    meter = Meter()
    try:
        for audio in audio_blocks(file, BLOCK, notes.append):
            if not rate:
                rate = audio.rate
                spotter.reset(rate)
                saver = _saver(options, spotter, name or Path(file).stem, rate)
            found = spotter.push(audio.waveform, rate)
            seconds += audio.seconds
            meter.push(audio.waveform)
            events += found
            if saver:
                saver.push(audio.waveform, found)
            if progress:
                progress(seconds)
    except UserError as problem:
        error = str(problem)
    if rate:
        found = spotter.finish()
        events += found
    hits = saver.finish(found) if saver else ()
    if meter.note():
        notes.append(f"{shown(file)}: {meter.note()}")
    return FileResult(
        shown(file), tuple(events), seconds, rate, error, spotter.remark, tuple(map(str, hits)), tuple(notes)
    )


def different_names(files: Sequence[str | Path]) -> list[str]:
    """A different name for each file: its stem, shortened where a suffix would not fit, numbered where it is taken."""
    stems = [_shortened(Path(file).stem) for file in files]
    count = Counter(stems)
    taken, names = {stem for stem in stems if count[stem] == 1}, []
    numbers = {stem: itertools.count() for stem in count}
    for stem in stems:
        name = stem
        while count[stem] > 1 and (name == stem or name in taken):
            name = f"{stem}-{next(numbers[stem])}"
        taken.add(name)
        names.append(name)
    return names


def _shortened(stem: str) -> str:
    return os.fsdecode(os.fsencode(stem)[:LONGEST_NAME])


def _saver(options: ScanOptions, spotter: KeywordSpotter, name: str, rate: float) -> HitSaver | None:
    if not options.hits:
        return None
    return HitSaver(options.hits, name, rate, clip=spotter.bundle.seconds or 1.0, margin=options.margin)


def _seconds(file: str | Path) -> float:
    try:
        return audio_info(file).seconds
    except UserError:
        return 0.0  # reported when its turn comes


def _shifted(progress: Progress | None, before: float) -> Progress | None:
    return None if progress is None else lambda seconds: progress(before + seconds)


def _in_processes(
    files: Sequence[str | Path], options: ScanOptions, n: int, progress: Progress | None
) -> Iterator[FileResult]:
    heard = [0.0] * len(files)  # seconds

    def note(i: int, seconds: float) -> None:
        heard[i] = seconds
        if progress:
            progress(sum(heard))

    jobs = [(options, str(file), name) for file, name in zip(files, different_names(files), strict=True)]
    yield from mapped(_scan_one, jobs, n=n, begin=partial(spotter_of, options), progress=note)


def _scan_one(spotter: KeywordSpotter, options: ScanOptions, file: str, name: str) -> FileResult:
    return scan_file(file, spotter, options, name=name, progress=report)
