"""kws-scan FILES...: where a model's words are in recordings of any length, format and rate.

kws-scan meeting.mp3                                    a table: start, end, score, word
kws-scan calls/ --keywords yes no --format csv          every recording of a folder
kws-scan show.flac --format audacity --out labels.txt   a label track
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kws_s5.cli import guarded
from kws_s5.errors import UserError
from kws_s5.printable import printable as shown

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
MAX_MARGIN = 60.0  # seconds

DESCRIPTION = """Where a model's words are in recordings of any length, sample rate and format (wav, flac, ogg, mp3;
with ffmpeg installed also m4a, webm, wma, amr and the like).

examples:
  kws-scan meeting.mp3 --model runs/quickstart
  kws-scan calls/ --keywords yes,no --format csv --out found.csv
  kws-scan show.flac --format audacity --out labels.txt
  kws-scan radio.mp3 --save-hits hits          cut out what was found: check it, train with the wrong finds

exit status: 0 words found, 1 nothing found, 2 a mistake, or something was not read (the rest was searched)"""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Recordings, or folders of recordings."""
    model: str = ""
    """A run folder, a model file, the name of a shipped model, or an exported one (.onnx). Default: the shipped one."""
    runtime: Literal["auto", "torch", "onnx"] = "auto"
    """What runs the model. auto: onnxruntime for files that end in .onnx (written by kws-export), else torch."""
    keywords: tuple[str, ...] = ()
    """Report only these words (yes,no or yes no)."""
    format: Literal["table", "json", "csv", "audacity", "srt"] = "table"
    """Form of the result: audacity is a label track, srt subtitles."""
    threshold: float | None = None
    """Score from which a word counts, for all words. Default: the model's own (kws-calibrate), else 0.5."""
    out: str = ""
    """File for the result (a folder for audacity and srt with several recordings). Default: the terminal."""
    save_hits: str = ""
    """Folder for a wav of every find: <folder>/<word>/<recording>_nohash_<ms>.wav."""
    margin: float = 0.0
    """Seconds around the word in a saved wav; 0: as long as the model's training clips."""
    processes: int = 0
    """Recordings searched at the same time; 0: one for each core."""
    quiet: Flag = False
    """Show no progress and no summary."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0 found, 1 nothing found, 2 a mistake or a bad file."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-scan", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> int:
    from kws_s5.listening import formats
    from kws_s5.listening.recordings import recordings
    from kws_s5.listening.scan import ScanOptions, scan, total_seconds

    given = recordings(arguments.files)
    files = given.files
    _check(arguments, files)
    if given.left_out:
        print(f"warning: {given.left_out}", file=sys.stderr)
    model = model_for(arguments.model, arguments.runtime)
    options = ScanOptions(
        model, split_words(arguments.keywords), arguments.threshold, hits=arguments.save_hits, margin=arguments.margin
    )
    streamed = not arguments.out and arguments.format != "json"
    results = []
    with _progress(arguments.quiet, total_seconds(files)) as progress:
        for i, result in enumerate(scan(files, options, processes=arguments.processes, progress=progress)):
            results.append(result)
            if result.error:
                print(f"error: {result.error}", file=sys.stderr)
            for note in result.notes:
                print(f"note: {note}", file=sys.stderr)
            if result.remark and i == 0 and not arguments.quiet:
                print(f"note: {result.remark}", file=sys.stderr)
            if streamed:
                print(formats.as_text([result], arguments.format, header=i == 0), end="", flush=True)
    if not streamed:
        _deliver(arguments, files, results)
    n = sum(len(result.events) for result in results)
    if not arguments.quiet:
        heard = formats.clock(sum(result.seconds for result in results))
        print(f"{n} found in {heard} of {len(files)} recording{'s' if len(files) > 1 else ''}", file=sys.stderr)
    return 2 if given.unread or any(result.error for result in results) else int(n == 0)


def split_words(given: Sequence[str]) -> tuple[str, ...]:
    """Words given one by one or between commas."""
    return tuple(word for part in given for word in part.split(",") if word)


def model_for(model: str, runtime: str) -> str:
    """The model named, or the shipped one, if ``runtime`` (auto, torch or onnx) can run it; UserError if not."""
    exported = model.endswith(".onnx")
    if runtime == "onnx" and not exported:
        what = f"{model} is not" if model else "--model names none that is"
        raise UserError(f"--runtime onnx runs exported models: {what}; kws-export MODEL writes one")
    if runtime == "torch" and exported:
        raise UserError(f"--runtime torch: {model} is exported; give the run folder or model file it came from")
    return model or default_model()


def default_model() -> str:
    """Name of the shipped model that listens; UserError where none is shipped."""
    from kws_s5.bundle import shipped

    names = shipped()
    if not names:
        raise UserError("name a model with --model: a run folder, for example runs/quickstart (make quickstart)")
    return "kws12" if "kws12" in names else names[0]


def _check(arguments: Arguments, files: Sequence[Path]) -> None:
    """Mistakes that would show only after hours of listening, or cost a recording."""
    from kws_s5.listening.formats import ONE_FILE, may_replace

    several = arguments.format in ONE_FILE and len(files) > 1
    if several and not arguments.out:
        raise UserError(f"--format {arguments.format} describes one recording: give --out FOLDER for several")
    if not 0 <= arguments.margin <= MAX_MARGIN or arguments.processes < 0:
        raise UserError(f"--margin must be 0 to {MAX_MARGIN:g} seconds, --processes 0 or more")
    out, hits = Path(arguments.out).expanduser(), Path(arguments.save_hits).expanduser()
    outputs = {path.resolve() for path in (_outputs(arguments, files) if several else [out] if arguments.out else [])}
    if outputs & {path.resolve() for path in files}:
        raise UserError(f"--out {out}: is one of the recordings; name another file")
    if arguments.model and outputs & _model_files(arguments.model):
        raise UserError(f"--out {out}: is the model; name another file")
    if arguments.out and out.exists() and out.is_dir() != several:
        raise UserError(f"--out {out}: {'is a file; name a folder' if several else 'is a folder; name a file'}")
    for path in _outputs(arguments, files) if several else ():
        if path.is_file() and not may_replace(path, arguments.format):
            raise UserError(f"{path}: is there already and holds something else; name another folder with --out")
    if arguments.save_hits and hits.exists() and not hits.is_dir():
        raise UserError(f"--save-hits {hits}: is a file; name a folder")
    if arguments.out:
        _prove_writable("--out", out if several else out.parent)
    if arguments.save_hits:
        _prove_writable("--save-hits", hits)


def _model_files(model: str) -> set[Path]:
    """The files that ``--model`` may mean."""
    path = Path(model).expanduser()
    return {path.resolve(), (path / "model.safetensors").resolve()}


def _prove_writable(option: str, folder: Path) -> None:
    """Writes and removes a small file in the folder, or in the nearest one above it that exists; UserError if not."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".kws-scan.") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"{option} {shown(folder)}: cannot be written ({error.strerror}); check the path, its "
            "permissions and the free space"
        ) from None


def _outputs(arguments: Arguments, files: Sequence[Path]) -> list[Path]:
    """The file in --out for each recording, named like it: players look for subtitles so."""
    from kws_s5.listening.formats import SUFFIX
    from kws_s5.listening.scan import different_names

    return [Path(arguments.out).expanduser() / f"{name}{SUFFIX[arguments.format]}" for name in different_names(files)]


def _deliver(arguments: Arguments, files: Sequence[Path], results: list) -> None:
    """The text to --out, or to the terminal."""
    from kws_s5.atomic import write_text
    from kws_s5.listening.formats import ONE_FILE, as_text

    if not arguments.out:
        print(as_text(results, arguments.format), end="")
        return
    out = Path(arguments.out).expanduser()
    if arguments.format not in ONE_FILE or len(results) == 1:
        write_text(out, as_text(results, arguments.format))
        return
    for path, result in zip(_outputs(arguments, files), results, strict=True):
        write_text(path, as_text([result], arguments.format))


@contextmanager
def _progress(quiet: bool, total: float) -> Iterator[Callable[[float], None] | None]:
    """A bar of heard seconds on the terminal's stderr; None elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("listening"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("listening", total=max(total, 1e-9))
        yield lambda seconds: bar.update(task, completed=seconds)
