"""``kws-data FOLDER``: a report on a folder of recordings before anything is trained on it.

Exit status: 0 nothing wrong, 1 problems found (told with what to do), 2 the folder cannot be read at all.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kws_s5.atomic import write_json
from kws_s5.cli import guarded
from kws_s5.config import KeywordData
from kws_s5.data.keywords.manifest import scan
from kws_s5.data.keywords.report import EXAMPLES, survey
from kws_s5.data.keywords.split_rule import SPLITS
from kws_s5.data.keywords.store import open_store


@dataclass(frozen=True)
class Options:
    """Reports what a folder of recordings, FOLDER/<word>/<clip>, holds and what to repair before training.

    Every clip is decoded once; training uses the same store.

    exit status: 0 no problem, 1 problems found, 2 the folder cannot be read
    """

    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FOLDER")]
    """The folder that holds one folder of recordings per word."""
    json: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """File for the whole report, with the name of every clip concerned."""
    cache: str = ""
    """Folder for decoded clips; empty: the user's cache folder."""
    validation_percent: float = 10.0
    """Percent for validation, where the folder has no split lists of its own (split by sha1)."""
    test_percent: Annotated[float, tyro.conf.arg(aliases=("--testing-percent",))] = 10.0  # its older name
    """Percent for the test, likewise."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return guarded(lambda: report(tyro.cli(Options, prog="kws-data", args=argv)))


def report(options: Options) -> int:
    """Prints (and writes) the report; 1 if it holds problems."""
    KeywordData(validation_percent=options.validation_percent, test_percent=options.test_percent)  # checks both
    manifest = scan(options.folder, validation_percent=options.validation_percent, test_percent=options.test_percent)
    store = open_store(manifest.root, (*manifest.clips, *manifest.noises), cache=options.cache)
    found = survey(manifest, store)
    if options.json:
        write_json(options.json, found)
    show(found, Console())
    return int(any(finding["level"] == "problem" for finding in found["findings"]))


def show(found: dict[str, Any], console: Console) -> None:
    """The report of ``survey`` on the screen."""
    console.print(_table(found))
    seconds = found["seconds"]
    console.print(
        f"{found['clips']} clips, {found['hours']:.2f} hours, {found['speakers'] or 'unknown'} speakers, "
        f"{found['noises']} noise recordings; split by {found['split_rule']}",
        markup=False,
    )
    console.print(
        f"rates (Hz): {_told(found['rates'])}; channels: {_told(found['channels'])}; seconds: "
        f"{seconds['shortest']:g} to {seconds['longest']:g}, median {seconds['median']:g}",
        markup=False,
    )
    if not found["findings"]:
        console.print("Nothing to repair.", style="green")
    for finding in found["findings"]:
        style = "bold red" if finding["level"] == "problem" else "yellow"
        advice = finding["advice"][0].upper() + finding["advice"][1:]
        console.print(f"[{style}]{finding['level']}[/]: {escape(finding['text'])}. {escape(advice)}.", soft_wrap=True)
        for clip in finding["clips"][:EXAMPLES]:
            console.print(f"    {clip}", markup=False, soft_wrap=True, style="dim")
        if len(finding["clips"]) > EXAMPLES:
            console.print(f"    and {len(finding['clips']) - EXAMPLES} more (all in the file of --json)", style="dim")


def _table(found: dict[str, Any]) -> Table:
    columns = ("clips", "unreadable", "speakers", "seconds", *SPLITS)
    heads = ("clips", "bad", "speakers", "seconds", "train", "valid", "test")  # short: seven columns fit 80 characters
    table = Table(title=escape(f"Recordings in {found['folder']}"))
    table.add_column("word", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for word, row in found["words"].items():
        cells = (f"{row[column]:.2f}" if column == "seconds" else str(row[column]) for column in columns)
        table.add_row(escape(word), *cells)
    return table


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{value} ({n})" for value, n in counts.items()) or "none"


if __name__ == "__main__":
    sys.exit(main())
