"""kws-calibrate MODEL --background DIR --max-fa-per-hour 0.5: thresholds that keep to a limit, stored in the model.

kws-calibrate runs/quickstart --background talk_radio
kws-calibrate commands12 --background talk_radio          writes commands12-calibrated.safetensors here
kws-calibrate runs/quickstart --background talk_radio --max-fa-per-hour 0.1 --out strict.safetensors
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kws_s5.cli import guarded
from kws_s5.errors import UserError

MOST_MISSED = 0.5  # of the words: a spotter that misses more is not put in the place of one that hears

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

DESCRIPTION = """Chooses a threshold for each keyword so that a limit on false alarms per hour is kept, and stores it
in the model file, where kws-scan, kws-listen and KeywordSpotter find it.

Background is sound in which nobody says the keywords: hours of talk and of the usual noises are best. The words are the
validation clips of the model's run (or --data DIR). The test clips stay unseen, for kws-eval --stream."""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: tyro.conf.Positional[str]
    """A run directory, a model file, or the name of a shipped model."""
    background: str = ""
    """Folder of recordings without keywords. Default: the validation clips of _unknown_ and _silence_."""
    max_fa_per_hour: float = 0.5
    """False alarms per hour of background that are allowed, all words together."""
    data: str = ""
    """Folder of recordings <word>/<clip> instead of the run's own clips; without split lists all of them count."""
    split: Literal["train", "validation", "test", "all"] = "validation"
    """Which clips give the words."""
    floor: float = 0.3
    """Lowest threshold."""
    rate: float = 0.0
    """Sample rate to calibrate at, in Hz. Default: the training rate."""
    snr: tuple[float, ...] = (30.0, 20.0)
    """Pink noise in dB below the words. The background must keep the limit as recorded and with each of them."""
    seed: int = 0
    """Seed of the noise and of the stream."""
    out: str = ""
    """Model file to write. Default: the model itself; for a shipped model NAME-calibrated.safetensors, here."""
    dry_run: Flag = False
    """Show the thresholds and store nothing."""
    json: Flag = False
    """Print the result as JSON."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a user's mistake."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-calibrate", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    from kws_s5.bundle import find, load

    if not 0 <= arguments.max_fa_per_hour <= 1e6 or not 0 < arguments.floor <= 1:
        raise UserError("--max-fa-per-hour must be 0 to 1000000, --floor in (0, 1]")
    if arguments.seed < 0 or not all(-100 <= snr <= 200 for snr in arguments.snr):
        raise UserError("--seed must be 0 or more, every --snr -100 to 200 dB")
    path = find(arguments.model)
    bundle = load(path)  # checks the file's checksum: what was tampered with is not calibrated
    report = calibration(bundle, arguments)
    bundle.thresholds = dict(report["thresholds"])
    bundle.metrics = {**bundle.metrics, "calibration": {k: v for k, v in report.items() if k != "by_word"}}
    out = Path(arguments.out).expanduser() if arguments.out else _default_out(path)
    useless = report["miss_rate"] is not None and report["miss_rate"] > MOST_MISSED
    store = not arguments.dry_run and (not useless or out.resolve() != path.resolve())
    if store:
        _save(bundle, out)
    if arguments.json:
        print(json.dumps(report))
    else:
        _show(report, arguments, out if store else None)
    if useless and not store and not arguments.dry_run:
        raise UserError(
            f"nothing stored: {report['miss_rate']:.0%} of the words would be missed at these thresholds; "
            "allow more with --max-fa-per-hour, train with talk as _unknown_ (recipe spotter), or name a "
            "file with --out to have them anyway"
        )


def calibration(bundle, arguments: Arguments) -> dict:
    """Thresholds and what they give on the material they were chosen on, as JSON values."""
    from kws_s5.eval.calibrate import calibrate, hours_needed
    from kws_s5.eval.held_out import MARKS, marks
    from kws_s5.eval.stream import background_track, progress_bar, tracks
    from kws_s5.eval.stream_audio import StreamConditions, gather
    from kws_s5.eval.stream_scores import by_word, row_at
    from kws_s5.listening.events import SpotterConfig

    source = _source(bundle, arguments)
    material = gather(source.dataset, bundle.labels, arguments.background, description=source.description)
    if not material.background:
        raise UserError("no background: name a folder of recordings without your keywords with --background DIR")
    rate = arguments.rate or bundle.rate
    conditions = [StreamConditions(rate, snr=snr, seed=arguments.seed) for snr in (None, *arguments.snr)]
    with progress_bar(arguments.json) as tick:
        background, words = tracks(bundle, material, conditions[0], tick)
        noisy = [background_track(bundle, material, c, tick) for c in conditions[1:]]
    config = SpotterConfig()
    thresholds = calibrate([background, *noisy], words, arguments.max_fa_per_hour, config, floor=arguments.floor)
    return {
        "thresholds": thresholds,
        "max_false_alarms_per_hour": arguments.max_fa_per_hour,
        "data": material.description,
        "background_hours": background.seconds / 3600,
        "hours_needed": _finite(hours_needed(arguments.max_fa_per_hour)),
        "rate": rate,
        "snr": list(arguments.snr),
        "seed": arguments.seed,
        MARKS: marks(material.background),
        **row_at(background, words, thresholds, config),
        "by_word": by_word(background, words, thresholds, config),
    }


def _source(bundle, arguments: Arguments):
    """Clips of the words: the run's, or those of a folder; all of a folder that has no split lists."""
    from kws_s5.data.keywords.split_rule import read_lists
    from kws_s5.eval.sources import from_folder, from_run

    if not arguments.data:
        return from_run(bundle, split=arguments.split)
    folder = Path(arguments.data).expanduser()
    listed = arguments.split != "validation" or (folder.is_dir() and bool(read_lists(folder)))
    return from_folder(bundle, folder, split=arguments.split if listed else "all")


def _default_out(path: Path) -> Path:
    """The model's own file; a shipped one belongs to the installed package and stays as it is."""
    from kws_s5.bundle import SHIPPED

    return Path(f"{path.stem}-calibrated.safetensors") if path.parent == SHIPPED else path


def _save(bundle, out: Path) -> None:
    try:
        bundle.save(out)
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}); name another file with --out") from None


def _show(report: dict, arguments: Arguments, written: Path | None) -> None:
    from rich.console import Console

    from kws_s5.eval.stream import word_table

    Console().print(word_table(report["by_word"]))
    hours, limit = report["background_hours"], arguments.max_fa_per_hour
    miss = "-" if report["miss_rate"] is None else f"{100 * report['miss_rate']:.1f} %"
    print(
        f"{report['false_alarms']} false alarms in {hours:.2f} h of background (with 95 % confidence below "
        f"{report['false_alarms_per_hour_upper']:.1f}/h), {miss} of {report['words']} words missed"
    )
    if report["hours_needed"] is not None and hours < report["hours_needed"]:
        print(f"note: {limit:g}/h can be proved only with {report['hours_needed']:.1f} h of background or more")
    if written:
        print(f"thresholds stored in {written}")
    elif arguments.dry_run:
        print("nothing stored (--dry-run)")


def _finite(x: float) -> float | None:
    return x if x < float("inf") else None
