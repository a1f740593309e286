"""Found words as text: a table for people, JSON and CSV for programs, labels for Audacity, subtitles (SRT).

Times are seconds from the start of the recording. SRT and Audacity files describe one recording each.
"""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from kws_s5.listening.scan import FileResult
from kws_s5.printable import cell, printable

Format = Literal["table", "json", "csv", "audacity", "srt"]
SUFFIX = {"table": ".txt", "json": ".json", "csv": ".csv", "audacity": ".txt", "srt": ".srt"}
ONE_FILE = ("audacity", "srt")  # formats without a column for the file
COLUMNS = ("file", "word", "start", "end", "score", "decided")
SHORTEST = 0.2  # seconds that a subtitle stays


def as_text(results: Sequence[FileResult], format: Format, *, header: bool = True) -> str:
    """All results in one text that ends with a line break (or is empty)."""
    return {"table": _table, "json": _json, "csv": _csv, "audacity": _audacity, "srt": _srt}[format](results, header)


def may_replace(path: Path, format: Format) -> bool:
    """Whether a file holds what this format looks like (or nothing): an earlier result, not somebody's notes."""
    with open(path, encoding="utf-8", errors="replace") as file:
        start = file.read(1000)
    timed = {"audacity": r"[\d.]+\t[\d.]+\t", "srt": r"\d+\n\d+:\d+:\d+,\d+ --> "}[format]
    return not start or re.match(timed, start) is not None


def as_dict(result: FileResult) -> dict[str, Any]:
    """One recording as plain JSON values."""
    found = [
        {
            "word": e.label,
            "start": round(e.start, 3),
            "end": round(e.end, 3),
            "score": round(e.score, 4),
            "decided": round(e.time, 3),
        }
        for e in result.events
    ]
    entry = {"file": result.file, "rate": result.rate, "seconds": round(result.seconds, 3), "events": found}
    return (
        entry
        | ({"hits": list(result.hits)} if result.hits else {})
        | ({"error": result.error} if result.error else {})
        | ({"notes": list(result.notes)} if result.notes else {})
    )


def clock(seconds: float) -> str:
    """1:02:03.45"""
    hundredths = round(100 * seconds)
    minutes, rest = divmod(hundredths, 6000)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 100:02d}.{rest % 100:02d}"


def _table(results: Sequence[FileResult], header: bool) -> str:
    lines = ["      start         end  score  word" + ("            file" if header else "")] if header else []
    for result in results:
        lines += [
            f"{clock(e.start):>11} {clock(e.end):>11}  {e.score:.3f}  {printable(e.label):<14}  "
            f"{printable(result.file)}".rstrip()
            for e in result.events
        ]
    return "\n".join(lines) + "\n" if lines else ""


def _json(results: Sequence[FileResult], header: bool) -> str:
    text = json.dumps({"files": [as_dict(result) for result in results]}, ensure_ascii=False, indent=1) + "\n"
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)  # the same values


def _csv(results: Sequence[FileResult], header: bool) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    if header:
        lines.writerow(COLUMNS)
    for result in results:
        for e in result.events:
            numbers = f"{e.start:.3f}", f"{e.end:.3f}", f"{e.score:.4f}", f"{e.time:.3f}"
            lines.writerow([cell(result.file), cell(e.label), *numbers])
    return text.getvalue()


def _audacity(results: Sequence[FileResult], header: bool) -> str:
    """Audacity's label track: start, end and text between tabs."""
    return "".join(
        f"{e.start:.6f}\t{e.end:.6f}\t{printable(e.label)} {e.score:.2f}\n" for r in results for e in r.events
    )


def _srt(results: Sequence[FileResult], header: bool) -> str:
    blocks = []
    for e in (event for result in results for event in result.events):
        span = f"{_srt_time(e.start)} --> {_srt_time(max(e.end, e.start + SHORTEST))}"
        blocks.append(f"{len(blocks) + 1}\n{span}\n{printable(e.label)}\n")
    return "\n".join(blocks)


def _srt_time(seconds: float) -> str:
    milliseconds = round(1000 * seconds)
    rest, milliseconds = divmod(milliseconds, 1000)
    return f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d},{milliseconds:03d}"
