"""What kws-eval does once its command line is understood: read the model, find the clips, choose the rows, report."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from kws_s5.atomic import write_json
from kws_s5.audio.files import load_audio
from kws_s5.audio.samples import shown
from kws_s5.bundle import Bundle, load
from kws_s5.config import LogMelFront
from kws_s5.errors import UserError
from kws_s5.eval import report
from kws_s5.eval.arguments import Arguments
from kws_s5.eval.evaluate import evaluate, evaluate_plain
from kws_s5.eval.protocol import Condition, conditions_for
from kws_s5.eval.sources import Source, from_folder, from_run


def run(arguments: Arguments) -> None:
    """The command. Raises UserError for what the user can mend."""
    if arguments.batch_size < 1 or arguments.processes < 1:
        raise UserError("--batch-size and --processes must be 1 or more")
    if arguments.seed < 0 or not all(rate > 0 for rate in arguments.rate):
        raise UserError("--seed must be 0 or more, every --rate a positive rate in Hz")
    bundle = load(arguments.model)
    folders = [file for file in arguments.files if file.is_dir()]
    if arguments.files and not folders:
        return _listen(bundle, arguments)
    if len(arguments.files) > 1 or (folders and arguments.data):
        raise UserError("give either sound files, or one folder")
    data = arguments.data or (str(folders[0]) if folders else "")
    split = None if arguments.split == "auto" else arguments.split
    source = from_folder(bundle, data, split=split) if data else from_run(bundle, split=split or "test")
    if arguments.stream:
        from kws_s5.eval.stream import run_stream

        return run_stream(bundle, source, arguments, _out(arguments, data))
    report_on = _report if bundle.rate else _plain
    return report_on(bundle, source, arguments, _out(arguments, data))


def _report(bundle: Bundle, source: Source, arguments: Arguments, out: Path) -> None:
    conditions = conditions_of(bundle, source, arguments)
    with _progress(arguments, len(conditions) * len(source.dataset)) as done:
        results = evaluate(
            bundle,
            source.dataset,
            conditions,
            batch_size=arguments.batch_size,
            processes=arguments.processes,
            progress=done,
        )
    own_rate = source.own_rates[0] if len(source.own_rates) == 1 else 0.0
    found = report.summary(bundle, results, data=source.description, own_rate=own_rate, remarks=source.remarks)
    written = report.write(found, out)
    written.append(report.write_predictions(results, bundle.labels, source.ids, out / "predictions.csv"))
    if arguments.json:
        print(json.dumps(found))
        return
    console = Console()
    print(f"{_named(arguments, bundle)}, trained at {bundle.rate:g} Hz, on {found['data']}")
    console.print(report.table(found))
    print(f"Words at {found['rows'][0]['name']}:")
    console.print(report.class_table(found["rows"][0]))
    for line in source.remarks:
        console.print(f"note: {line}", markup=False, soft_wrap=True)
    console.print("written: " + ", ".join(map(str, written)), markup=False, soft_wrap=True)


def conditions_of(bundle: Bundle, source: Source, arguments: Arguments) -> list[Condition]:
    """The rows that the command line asks for."""
    chosen = [
        name
        for name, wanted in (
            ("rescale", arguments.rescale),
            ("none", arguments.no_rescale),
            ("resample_back", arguments.resample_back),
        )
        if wanted
    ]
    if not chosen and isinstance(bundle.config.model.front, LogMelFront):
        chosen = ["resample_back"]  # nothing in it can be rescaled
    if not chosen and arguments.snr:
        chosen = ["rescale"]
    resampler = None if arguments.resampler == "both" else arguments.resampler
    rows = conditions_for(bundle.rate, source.own_rates, rates=arguments.rate, resampler=resampler, treatments=chosen)
    rows = [variant for row in rows for variant in _variants(row, bundle.rate, arguments)]
    noisy = [replace(row, snr=snr, noise=arguments.noise, seed=arguments.seed) for row in rows for snr in arguments.snr]
    return rows + noisy


def _variants(row: Condition, train_rate: float, arguments: Arguments) -> list[Condition]:
    """The row with each interpolation, and masked; rows to which neither applies stay alone."""
    if row.treatment != "rescale" or row.rate >= train_rate:
        return [row]
    rows = [replace(row, interpolation=interpolation) for interpolation in dict.fromkeys(arguments.interpolation)]
    return rows + [replace(r, mask_modes=True) for r in rows if arguments.mask_modes]


def _plain(bundle: Bundle, source: Source, arguments: Arguments, out: Path) -> None:
    with _progress(arguments, len(source.dataset)) as done:
        scores = evaluate_plain(bundle, source.dataset, batch_size=arguments.batch_size, progress=done)
    found = {"model": bundle.config.name, "data": source.description, **scores}
    write_json(out / "results.json", found)
    if arguments.json:
        print(json.dumps(found))
    else:
        print(
            f"{_named(arguments, bundle)} on {found['data']}: "
            + ", ".join(f"{name} {value:.6g}" for name, value in scores.items())
        )


def _listen(bundle: Bundle, arguments: Arguments) -> None:
    heard = {}
    for file in arguments.files:
        audio = load_audio(file)
        heard[str(file)] = bundle.classify(audio.waveform, audio.rate)
        limit = getattr(bundle.config.data, "seconds", 0.0)
        if 0 < limit < audio.seconds / 1.5:
            print(
                f"note: {file}: only the middle {limit:g} s of {audio.seconds:.2f} s were listened to; kws-scan "
                "finds words in long recordings",
                file=sys.stderr,
            )
        if not arguments.json:
            best = sorted(heard[str(file)].items(), key=lambda item: -item[1])[:5]
            print(
                f"{file} ({audio.rate:g} Hz, {audio.seconds:.2f} s): "
                + ", ".join(f"{label} {probability:.3f}" for label, probability in best)
            )
    if arguments.json:
        print(json.dumps(heard))


def _named(arguments: Arguments, bundle: Bundle) -> str:
    """The model as it was given, and in brackets the name that its training gave it where that is another."""
    given, own = shown(arguments.model), shown(bundle.config.name)
    return given if given == own else f"{given} ({own})"


def _out(arguments: Arguments, data: str) -> Path:
    """Where the report goes: each folder of recordings has its own place beside the report on the run's clips."""
    if arguments.out:
        out = Path(arguments.out).expanduser()
        if out.exists() and not out.is_dir():
            raise UserError(f"--out {out}: is a file; name a folder")
        return out
    model, suffix = Path(arguments.model).expanduser(), f"-{Path(data).resolve().name}" if data else ""
    return model / f"eval{suffix}" if model.is_dir() else Path(f"eval-{model.stem}{suffix}")


@contextmanager
def _progress(arguments: Arguments, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal's stderr; silent elsewhere."""
    silent = arguments.json or not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=silent, transient=True) as bar:
        task = bar.add_task("evaluating", total=total)
        yield lambda n: bar.advance(task, n)
