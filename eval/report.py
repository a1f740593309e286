"""What an evaluation leaves behind: a table on screen, results.json, and plots. Every number names its protocol."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from kws_s5 import __version__, metrics
from kws_s5.atomic import write_json, write_text
from kws_s5.bundle import Bundle
from kws_s5.eval.evaluate import Result
from kws_s5.eval.protocol import QUALITY

SELECTION = "epoch and settings were chosen on validation clips at the training rate; test clips were not looked at"
INTERVAL = "95 % Wilson score interval over clips"


def rows_of(results: Sequence[Result], train_rate: float, *, own_rate: float = 0.0) -> list[dict]:
    """One row a condition: its protocol, number of clips, accuracy with interval, calibration error.

    Args:
        train_rate: Hz, of the model.
        own_rate: Hz, of the clips where a condition leaves them at their own rate and all have the same.
    """
    rows = []
    for result in results:
        condition, n = result.condition, len(result.truth)
        low, high = metrics.wilson_interval(result.n_correct, n)
        rate = condition.rate or own_rate  # 0: clips of several rates
        step = train_rate / rate if rate else None
        rows.append(
            {
                "name": condition.name,
                "protocol": condition.protocol,
                "rate": rate,
                "how": condition.how,
                "treatment": condition.treatment,
                "step_rescale": step if condition.treatment == "rescale" else 1.0,
                "interpolation": condition.interpolation,
                "mask_modes": condition.mask_modes,
                "snr": condition.snr,
                "noise": None if condition.snr is None else condition.noise,
                "seed": condition.seed,
                "n": n,
                "n_correct": result.n_correct,
                "accuracy": result.accuracy,
                "low": low,
                "high": high,
                "calibration_error": metrics.calibration_error(result.confidence, result.truth == result.predicted),
            }
        )
    return rows


def summary(
    bundle: Bundle, results: Sequence[Result], *, data: str, own_rate: float = 0.0, remarks: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything as plain JSON values, with the details of every condition."""
    rows = rows_of(results, bundle.rate, own_rate=own_rate)
    for row, result in zip(rows, results, strict=True):
        row["per_class"] = metrics.per_class(result.truth, result.predicted, bundle.labels)
        row["macro_f1"] = metrics.macro(row["per_class"], "f1")
        row["confusion"] = metrics.confusion_matrix(result.truth, result.predicted, len(bundle.labels)).tolist()
    return {
        "model": bundle.config.name,
        "trained_with": bundle.version,
        "library": __version__,
        "train_rate": bundle.rate,
        "labels": list(bundle.labels),
        "data": data,
        "remarks": list(remarks),
        "interval": INTERVAL,
        "selection": SELECTION,
        "decimation": "every r-th sample, beginning with the first, no filter",
        "resampler": f"soxr {QUALITY}",
        "training_data": bundle.note,
        "rows": rows,
    }


def table(report: Mapping[str, Any]) -> Table:
    """The rows for the screen; narrow enough for 80 columns."""
    noisy = any(row["snr"] is not None for row in report["rows"])
    result = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption_justify="left",
        caption=f"In brackets: {INTERVAL}.",
    )
    for name in ("Hz", "protocol", "Delta x", *(["noise"] if noisy else []), "accuracy %", "F1", "clips"):
        result.add_column(name, justify="left" if name in ("protocol", "noise") else "right")
    for row in report["rows"]:
        noise = "" if row["snr"] is None else f"{row['noise']} {row['snr']:g} dB"
        step = "own" if row["step_rescale"] is None else f"{row['step_rescale']:.4g}"
        low, accuracy, high = (f"{100 * row[name]:.1f}" for name in ("low", "accuracy", "high"))
        result.add_row(
            f"{row['rate']:g}" if row["rate"] else "own",
            row["protocol"],
            step,
            *([noise] if noisy else []),
            f"{accuracy} ({low}-{high})",
            _shown(row["macro_f1"]),
            str(row["n"]),
        )
    return result


def class_table(row: Mapping[str, Any]) -> Table:
    """Precision, recall and F1 of each class of one condition."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("word", "precision", "recall", "F1", "clips"):
        result.add_column(name, justify="left" if name == "word" else "right")
    for entry in row["per_class"]:
        if not entry["n"] and entry["precision"] is None:
            continue  # neither said nor heard
        result.add_row(
            Text(entry["label"]), *(_shown(entry[score]) for score in ("precision", "recall", "f1")), str(entry["n"])
        )
    return result


def write_predictions(results: Sequence[Result], labels: Sequence[str], ids: Sequence[str], path: Path) -> Path:
    """A CSV for looking at mistakes: one line a clip, its true word and what was heard under each condition."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["clip", "true", *(result.condition.name for result in results)])
    for i, id in enumerate(ids):
        lines.writerow([id, labels[results[0].truth[i]], *(labels[result.predicted[i]] for result in results)])
    write_text(path, text.getvalue())
    return path


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """results.json, confusion matrix of the first condition, accuracy over rate and over noise where they vary."""
    from kws_s5 import plots  # matplotlib is loaded when something is drawn

    rows, labels = report["rows"], report["labels"]
    written = [folder / "results.json", folder / "confusion.png"]
    write_json(written[0], report)
    plots.confusion(np.array(rows[0]["confusion"]), labels, written[1], title=rows[0]["name"])
    present = sum(entry["n"] > 0 for entry in rows[0]["per_class"])
    by_rate = _with_shared_point([row for row in rows if row["rate"] and row["snr"] is None], report["train_rate"])
    if len({row["rate"] for row in by_rate}) > 1:
        written.append(folder / "accuracy_by_rate.png")
        plots.accuracy_by_rate(by_rate, written[-1], chance=1 / max(present, 1))
    by_snr = [
        {**row, "protocol": f"{row['rate']:g} Hz, {row['protocol']}" if row["rate"] else row["protocol"]}
        for row in rows
    ]
    if len({row["snr"] for row in by_snr}) > 1:
        written.append(folder / "accuracy_by_snr.png")
        plots.accuracy_by_snr(by_snr, written[-1], chance=1 / max(present, 1))
    for old in {"accuracy_by_rate.png", "accuracy_by_snr.png"} - {path.name for path in written}:
        (folder / old).unlink(missing_ok=True)  # of an earlier report: it would contradict this one
    return written


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def _with_shared_point(rows: list[dict], train_rate: float) -> list[dict]:
    """At the training rate all protocols are the same, so each line gets that point; it is no line of its own."""
    shared = [row for row in rows if row["rate"] == train_rate]
    others = [row for row in rows if row["rate"] != train_rate]
    if not shared or not others:
        return rows
    protocols = dict.fromkeys(row["protocol"] for row in others)
    return others + [{**shared[0], "protocol": protocol} for protocol in protocols]
