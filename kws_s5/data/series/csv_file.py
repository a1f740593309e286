"""Reads irregular time series from one CSV file and puts them in order; says what it had to mend.

    series,time,<feature>...,<target>...          one row an observation, header first, any order of rows
    a,0.00,0.31,1.02
    a,0.35,0.29,
    b,2024-05-01T12:00:00,...

Column 1: name of the series. Column 2: time, a number in any unit or an ISO 8601 date (then in seconds). A column named
``split`` (train, validation, test) is optional. An empty cell, NaN or inf is a missing value. Comma, semicolon or tab.

Legend: L rows of a series, F features, K targets.
"""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from kws_s5.errors import UserError

SPLITS = ("train", "validation", "test")
MAX_VALUE = 1e30  # larger numbers are what other programs write for "missing", and break sums of squares


@dataclass(frozen=True)
class Series:
    """One series in order of time; missing values are NaN."""

    name: str
    times: np.ndarray  # (L,) float64, strictly increasing
    features: np.ndarray  # (L, F) float64
    targets: np.ndarray  # (L, K) float64
    split: str = ""


@dataclass(frozen=True)
class Table:
    """A whole file. ``notes``: one line for everything that was not as it should be."""

    series: tuple[Series, ...]
    features: tuple[str, ...]
    targets: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_table(path: str | Path, targets: Sequence[str], *, training: bool = True) -> Table:
    """CSV file -> ordered series. Raises UserError with file and line for everything that cannot be mended.

    Args:
        targets: names of columns. training: they must be there, and series of one row are left out; otherwise a target
            column that the file lacks is missing throughout.
    """
    path = Path(path)
    if not os.path.isfile(path):  # unlike Path.is_file also for names that are too long
        known = os.path.exists(path)
        raise UserError(f"{path}: " + ("is not a file; name a CSV file" if known else "no such file"))
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.reader(file, delimiter=max(",;\t", key=first.count))
            header = [" ".join(name.split()) for name in next(rows, [])]
            features = _feature_columns(path, header, targets, training=training)
            blocks, n_short = _collect(path, rows, header, features, targets)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is no UTF-8 text; save the table as CSV in UTF-8") from error
    except csv.Error as error:
        raise UserError(f"{path}: is no table of text ({error}); save it as CSV in UTF-8") from error
    notes = [f"{n_short} empty lines left out"] if n_short else []
    ordered = [_ordered(name, block, len(features), notes) for name, block in blocks.items()]
    kept = tuple(series for series in ordered if len(series.times) > training)
    if len(kept) < len(ordered):
        notes.append(f"{len(ordered) - len(kept)} series of a single row left out")
    if not kept:
        raise UserError(f"{path}: no series" + (" with at least two rows" if training else ""))
    return Table(kept, features, tuple(targets), tuple(notes))


def _feature_columns(path: Path, header: list[str], targets: Sequence[str], *, training: bool) -> tuple[str, ...]:
    if len(header) < 3:
        raise UserError(f"{path}: the header needs a series column, a time column and at least one more, not {header}")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise UserError(f"{path}: two columns have the same name: {twice[0]!r}")
    values = [name for name in header[2:] if name != "split"]
    unknown = [name for name in targets if name not in values and training]
    if unknown or not targets:
        wrong = f"no column {unknown[0]!r}" if unknown else "data.targets is empty"
        raise UserError(f"{path}: {wrong}; choose data.targets from {', '.join(values)}")
    if len(set(targets)) < len(targets):
        raise UserError(f"{path}: data.targets names a column twice: {', '.join(targets)}")
    features = tuple(name for name in values if name not in targets)
    if not features:
        raise UserError(f"{path}: every column is a target; at least one must be left as a feature")
    return features


def _collect(
    path: Path, rows, header: list[str], features: Sequence[str], targets: Sequence[str]
) -> tuple[dict[str, list], int]:
    """Rows by series: name -> [(time, values, split), ...] as they come, and the number of empty lines."""
    columns = [header.index(name) if name in header else None for name in (*features, *targets)]
    split_column = header.index("split") if "split" in header[2:] else None
    blocks: dict[str, list] = {}
    n_empty, last_line, dates = 0, rows.line_num, None
    for row in rows:
        line = f"{path}, line {last_line + 1}"  # where the row begins: a quote may hold line breaks
        last_line = rows.line_num
        if not any(cell.strip() for cell in row):
            n_empty += 1
            continue
        if len(row) != len(header):
            raise UserError(f"{line}: {len(row)} cells, but the header has {len(header)}")
        values = [math.nan if i is None else _number(row[i], f"{line}, column {header[i]!r}") for i in columns]
        split = "" if split_column is None else row[split_column].strip()
        if split_column is not None and split not in SPLITS:
            raise UserError(f"{line}: split = {split!r}: must be one of {', '.join(SPLITS)}")
        time, is_date = _time(row[1], line)
        if dates not in (None, is_date):
            kind = "a date" if is_date else "a number"
            raise UserError(f"{line}: time {row[1].strip()!r} is {kind}, those above are not; write all in one way")
        dates = is_date
        blocks.setdefault(row[0].strip(), []).append((time, values, split))
    return blocks, n_empty


def _ordered(name: str, block: list, n_features: int, notes: list[str]) -> Series:
    """Rows of one series -> sorted by time, the last row of each moment kept; what was done is added to ``notes``."""
    if len({split for _, _, split in block}) > 1:
        raise UserError(f"series {name!r} is in two splits: give all its rows the same one")
    times = np.array([time for time, _, _ in block])
    values = np.array([row for _, row, _ in block])
    if (np.diff(times) < 0).any():
        notes.append(f"series {name!r}: rows were not in order of time; sorted")
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    last = np.append(np.diff(times) > 0, True)
    if not last.all():
        notes.append(f"series {name!r}: {(~last).sum()} rows at the time of another; the last one in the file is kept")
    times, values = times[last], values[last]
    return Series(name, times, values[:, :n_features], values[:, n_features:], block[0][2])


def pieces(series: Series, *, max_gap: float, max_length: int) -> list[Series]:
    """Cuts a series where an interval exceeds ``max_gap`` (its unit; 0: never), and after ``max_length`` rows."""
    cuts = set(np.flatnonzero(np.diff(series.times) > max_gap) + 1) if max_gap else set()
    edges = sorted({0, len(series.times)} | cuts)
    parts = []
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        step = max_length or end - start
        parts += [slice(i, min(i + step, end)) for i in range(start, end, step)]
    return [
        replace(series, times=series.times[part], features=series.features[part], targets=series.targets[part])
        for part in parts
        if part.stop - part.start > 1
    ]


def _number(cell: str, where: str) -> float:
    text = cell.strip()
    if not text or text.lower() in ("na", "n/a", "null", "none"):
        return math.nan
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{where}: {text!r} is not a number (leave the cell empty if it is missing)") from None
    if math.isfinite(value) and abs(value) > MAX_VALUE:
        raise UserError(f"{where}: {text[:40]!r} is too large (leave the cell empty if it is missing)")
    return value if math.isfinite(value) else math.nan


def _time(cell: str, line: str) -> tuple[float, bool]:
    """The time, and whether it was a date."""
    text, is_date = cell.strip(), False
    try:
        value = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            raise UserError(f"{line}: time {text!r} is neither a number nor an ISO 8601 date") from None
        value, is_date = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp(), True
    if not math.isfinite(value) or abs(value) > MAX_VALUE:
        raise UserError(f"{line}: time {text[:40]!r} is not finite, or too large")
    return value, is_date
