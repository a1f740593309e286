"""The user's own irregular series -> Examples: every observation a step, with the interval before it.

Features and targets are scaled to mean 0 and standard deviation 1, intervals to a median of 1, all measured on the
training series and kept in the config (hence in the model file), so that predictions can be given in the user's units.
A missing feature keeps its last value (before the first one: the mean), and one more input tells the share of features
that were there: a row with no feature at all is a question about that moment. A missing target is not scored.

Legend: L steps of a piece, F features (U = F + 1 inputs), K targets.
"""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from kws_s5.atomic import write_text
from kws_s5.config import SeriesData
from kws_s5.config.data import SeriesScaling
from kws_s5.data.batch import Example
from kws_s5.data.cache import cache_folder
from kws_s5.data.series import example as series_example
from kws_s5.data.series.csv_file import SPLITS, Series, Table, pieces, read_table
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

MAX_INTERVAL = 1e15  # median intervals
CONSTANT = 1e-9  # of the mean: a smaller deviation is rounding
LONG_GAP = 20.0  # median intervals; longer ones are mentioned in the report


class SeriesSet(Dataset):
    """Series as Examples: x (L, F + 1), y (L, K) with NaN where unknown, dt (L,) with 1 first."""

    def __init__(self, series: Sequence[Series], scaling: SeriesScaling) -> None:
        self.series = tuple(series)
        self.examples = [_example(s, scaling) for s in self.series]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]


def build(config: SeriesData) -> Splits:
    """Reads, checks, splits and scales the file. Raises UserError for what cannot be mended."""
    table = load_table(config)
    sets = {
        split: [p for s in members for p in pieces(s, max_gap=config.max_gap, max_length=config.max_length)]
        for split, members in split_series(table.series).items()
    }
    empty = [split for split in SPLITS if not sets[split]]
    if empty:
        raise UserError(
            f"{config.path}: no series of two rows or more in the {empty[0]} set; "
            "add series, or raise data.max_gap or data.max_length"
        )
    _check_targets(config.path, table.targets, sets)
    scaling = config.scaling if config.scaling.time_unit else measure(table, sets["train"])
    report = {
        "series": {split: len({s.name for s in members}) for split, members in sets.items()},
        "pieces": {split: len(members) for split, members in sets.items()},
        "rows": {split: sum(len(s.times) for s in members) for split, members in sets.items()},
        "features": list(table.features),
        "targets": list(table.targets),
        "scaling": asdict(scaling),
        "notes": [*table.notes, *_remarks(sets, scaling)],
    }
    alone = sum(len(s.times) for s in table.series) - sum(report["rows"].values())
    if alone:
        report["notes"].append(f"{alone} rows left out: cutting at data.max_gap or data.max_length left each alone")
    for note in report["notes"]:
        print(f"note: {config.path}: {note}", file=sys.stderr)
    train, validation, test = (SeriesSet(sets[split], scaling) for split in SPLITS)
    return Splits(
        train,
        validation,
        test,
        labels=(),
        n_outputs=len(table.targets),
        n_inputs=len(table.features) + 1,
        report=report,
        data=replace(config, targets=table.targets, scaling=scaling),
    )


def _check_targets(path: str, targets: tuple[str, ...], sets: dict[str, list[Series]]) -> None:
    """UserError where no row of a set could be scored."""
    for split, members in sets.items():
        if all(np.isnan(s.targets).all() for s in members):
            raise UserError(f"{path}: {', '.join(targets)}: no value in the {split} set; add some, or split otherwise")


def load_table(config: SeriesData) -> Table:
    """The file of the config; "example" is made in the cache. Checks that a trained model gets the columns it knows."""
    if config.path == "example":
        path = cache_folder(config.cache) / "springs-v1.csv"
        if not path.exists():
            write_text(path, series_example.text())
        return read_table(path, config.targets or series_example.TARGETS)
    table = read_table(config.path, config.targets)
    check_columns(config.path, table.features, config.scaling.features)
    return table


def check_columns(path: str | Path, found: tuple[str, ...], known: tuple[str, ...]) -> None:
    """UserError unless the features of a file are those a model was trained on (none known yet: anything goes)."""
    if known and found != known:
        raise UserError(
            f"{path}: the features are {', '.join(found)}; this model was trained on {', '.join(known)}, in this order"
        )


def split_series(series: Sequence[Series]) -> dict[str, list[Series]]:
    """By the file's own split column, else 80 / 10 / 10 % of the series in the order of their names' sha1."""
    if series[0].split:
        return {split: [s for s in series if s.split == split] for split in SPLITS}
    if len(series) < 3:
        raise UserError(
            f"{len(series)} series of two rows or more: at least three are needed, one each to train, "
            "validate and test; give parts of a long recording names of their own, or add a split column"
        )
    mixed = sorted(series, key=lambda s: hashlib.sha1(s.name.encode()).hexdigest())
    n = max(1, round(len(mixed) / 10))
    return {"test": mixed[:n], "validation": mixed[n : 2 * n], "train": mixed[2 * n :]}


def measure(table: Table, series: Sequence[Series]) -> SeriesScaling:
    """Scaling of the training series: median interval, means and standard deviations."""
    intervals = np.concatenate([np.diff(s.times) for s in series])
    means, stds = [], []
    for part, names in (("features", table.features), ("targets", table.targets)):
        values = np.concatenate([getattr(s, part) for s in series])  # (rows, F or K)
        for name, column in zip(names, values.T, strict=True):
            if np.isnan(column).all():
                raise UserError(f"column {name!r} has no value in any training series; leave it out")
        mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        means.append(tuple(mean.tolist()))
        stds.append(tuple(np.where(std > CONSTANT * np.abs(mean), std, 1.0).tolist()))
    return SeriesScaling(float(np.median(intervals)), table.features, means[0], stds[0], means[1], stds[1])


def _example(series: Series, scaling: SeriesScaling) -> Example:
    features = (series.features - np.array(scaling.feature_mean)) / np.array(scaling.feature_std)  # (L, F)
    present = ~np.isnan(features)
    last = np.maximum.accumulate(np.where(present, np.arange(len(features))[:, None], -1), axis=0)  # (L, F)
    carried = np.take_along_axis(np.nan_to_num(features), np.maximum(last, 0), axis=0)
    x = np.concatenate([np.where(last >= 0, carried, 0.0), present.mean(1, keepdims=True)], axis=1)  # (L, F + 1)
    y = (series.targets - np.array(scaling.target_mean)) / np.array(scaling.target_std)  # (L, K)
    dt = np.append(1.0, np.diff(series.times) / scaling.time_unit)
    if dt.max() > MAX_INTERVAL:
        raise UserError(
            f"series {series.name!r}: an interval of {np.diff(series.times).max():g} is longer than "
            f"{MAX_INTERVAL:g} median intervals; correct its times, or cut there with data.max_gap"
        )
    x, y, dt = (torch.from_numpy(a.astype(np.float32)) for a in (x, y, dt))
    return Example(x, y, dt=dt)


def _remarks(sets: dict[str, list[Series]], scaling: SeriesScaling) -> list[str]:
    """What a user should know about values and intervals."""
    everything = [s for members in sets.values() for s in members]
    remarks = []
    for part, treatment in (("features", "the last value is kept"), ("targets", "not scored")):
        missing = sum(int(np.isnan(getattr(s, part)).sum()) for s in everything)
        if missing:
            remarks.append(f"{missing} missing values among the {part}: {treatment}")
    gaps = [(float(np.diff(s.times).max()), s.name) for s in everything]
    long = [gap for gap in gaps if gap[0] > LONG_GAP * scaling.time_unit]
    if long:
        longest, name = max(long)
        remarks.append(
            f"{len(long)} pieces with a gap above {LONG_GAP:g} median intervals, the longest {longest:g} in "
            f"series {name!r}: kept as one long step; data.max_gap cuts there"
        )
    return remarks
