"""Predictions of a trained series model for a CSV file: mean and standard deviation of every target at every row.

    python -m kws_s5.eval.series runs/series new.csv --out predictions.csv

The file has the layout of the training data (docs/pendulum.md); target columns may be missing. A row whose features are
all empty is a question about that moment. Where targets are given, the error is printed.
"""

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from kws_s5.atomic import write_text
from kws_s5.bundle import Bundle, load
from kws_s5.cli import guarded
from kws_s5.config import SeriesData
from kws_s5.data.batch import collate
from kws_s5.data.series.csv_file import Series, read_table
from kws_s5.data.series.reader import SeriesSet, check_columns
from kws_s5.errors import UserError


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: tyro.conf.Positional[str]
    """Run folder or model file of the recipe series."""
    file: tyro.conf.Positional[Path]
    """The CSV file."""
    out: Path = Path("predictions.csv")
    """File for the predictions."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a user's mistake."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m kws_s5.eval.series", description=__doc__)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    if arguments.out.exists() and arguments.file.exists() and arguments.out.samefile(arguments.file):
        raise UserError(f"{arguments.out}: the predictions would replace the data; choose another file with --out")
    bundle = load(arguments.model)
    data = bundle.config.data
    if not isinstance(data, SeriesData):
        raise UserError(f"{arguments.model}: not a series model")
    table = read_table(arguments.file, data.targets, training=False)
    check_columns(arguments.file, table.features, data.scaling.features)
    for note in table.notes:
        print(f"note: {note}")
    predictions = [predict(bundle, series) for series in table.series]
    write_text(arguments.out, as_text(table.series, predictions, data.targets))
    truth, means = np.concatenate([s.targets for s in table.series]), np.concatenate([mean for mean, _ in predictions])
    for name, error in zip(data.targets, (means - truth).T, strict=True):
        error = error[~np.isnan(error)]
        if len(error):
            print(f"{name}: root mean square error {np.sqrt((error**2).mean()):.4g} over {len(error)} rows")
    print(f"{arguments.out}: {sum(len(s.times) for s in table.series)} rows of {len(table.series)} series")


def predict(bundle: Bundle, series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (L, K) of the targets, in the units of the training file."""
    scaling = bundle.config.data.scaling
    example = SeriesSet([series], scaling)[0]
    mean, variance = (output[0].double().numpy() for output in bundle.logits(collate([example])))
    unit = np.array(scaling.target_std)
    return mean * unit + np.array(scaling.target_mean), np.sqrt(variance) * unit


def as_text(
    series: Sequence[Series], predictions: Sequence[tuple[np.ndarray, np.ndarray]], targets: Sequence[str]
) -> str:
    """CSV: series, time, then mean and standard deviation of each target; rows in order of time."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["series", "time", *(column for name in targets for column in (name, f"{name}_std"))])
    for s, (mean, std) in zip(series, predictions, strict=True):
        for time, row in zip(s.times, np.stack([mean, std], -1).reshape(len(mean), -1), strict=True):
            lines.writerow([s.name, repr(float(time)), *(f"{value:.6g}" for value in row)])
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
