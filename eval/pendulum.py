"""How well pendulum models do beyond what they were trained on: other densities, gaps, moments never observed.

    python -m kws_s5.eval.pendulum runs/pendulum runs/pendulum-gru --out docs/pendulum

Runs of the same recipe (several seeds) become one row with mean and standard deviation.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from kws_s5 import __version__
from kws_s5.atomic import write_json, write_text
from kws_s5.bundle import Bundle, load
from kws_s5.cli import guarded
from kws_s5.config import PendulumData
from kws_s5.data.pendulum.physics import targets
from kws_s5.data.pendulum.store import MOMENTS, Recording, recordings
from kws_s5.errors import UserError
from kws_s5.eval.pendulum_conditions import (
    DENSITIES,
    N_FRAMES,
    Sampling,
    answers,
    held,
    query_samplings,
    samplings,
    scores,
)
from kws_s5.eval.pendulum_tables import markdown, training

SHOWN = 3  # the test sequence of the plot


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    models: tyro.conf.Positional[tuple[str, ...]]
    """Run folders or model files of pendulum recipes."""
    n: int = 1000
    """Test sequences; fewer is quicker."""
    out: str = "eval-pendulum"
    """Folder for results.json, tables.md and the plots."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a user's mistake."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m kws_s5.eval.pendulum", description=__doc__)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    if not arguments.models:
        raise UserError("name at least one run folder of a pendulum recipe")
    console, bundles = Console(), [load(source) for source in arguments.models]
    recording = test_recording(bundles[0], arguments.n)
    rows = []
    for source, bundle in zip(arguments.models, bundles, strict=True):
        console.print(f"{source}: {bundle.config.name}, seed {bundle.config.training.seed}")
        rows += [{"source": source, **row} for row in evaluate(bundle, recording)]
    report = {
        "library": __version__,
        "n": len(recording),
        "selection": "epoch chosen on validation sequences",
        "parameters": {b.config.name: sum(p.numel() for p in b.model.parameters()) for b in bundles},
        "training": [row for source in arguments.models if (row := training(source))],
        "rows": rows,
        "summary": summary(rows),
    }
    for title, kind in (("seen frames", "seen"), ("moments never observed", "query")):
        console.print(f"\ntest MSE x 1e-3, {title}; several seeds: mean (standard deviation)")
        console.print(table([row for row in report["summary"] if row["kind"] == kind]))
    paths = write(report, bundles, recording, Path(arguments.out))
    console.print("written: " + ", ".join(map(str, paths)))


def test_recording(bundle: Bundle, n: int) -> Recording:
    """The first ``n`` test sequences of the bundle's own data (all of them, if there are fewer)."""
    if not isinstance(bundle.config.data, PendulumData):
        raise UserError(f"{bundle.config.name}: not a pendulum model")
    if n < 1:
        raise UserError(f"n = {n}: must be at least 1")
    if bundle.config.data.n_frames != N_FRAMES:
        raise UserError(
            f"{bundle.config.name}: was trained on sequences of {bundle.config.data.n_frames} frames; the "
            f"conditions are made for {N_FRAMES}"
        )
    test = recordings(bundle.config.data)["test"]
    return Recording(test.images[:n], test.angles[:n])


def evaluate(bundle: Bundle, recording: Recording) -> list[dict[str, Any]]:
    """One row of scores for every condition."""
    common = {"model": bundle.config.name, "seed": bundle.config.training.seed}
    rows = []
    for sampling in samplings(len(recording)):
        given = answers(bundle, recording, sampling)
        rows.append(
            {
                **common,
                "kind": "seen",
                "condition": sampling.name,
                "n_seen": sampling.n_seen,
                **scores(given.truth, given.mean, given.variance, given.is_seen),
            }
        )
    for sampling in query_samplings(len(recording)):
        rows += [
            {**common, "kind": "query", "n_seen": sampling.n_seen, **row}
            for row in query_rows(bundle, recording, sampling)
        ]
    return rows


def query_rows(bundle: Bundle, recording: Recording, sampling: Sampling) -> list[dict[str, Any]]:
    """Errors at moments never observed, by three ways to answer."""
    given = answers(bundle, recording, Sampling(sampling.name, sampling.n_seen, sampling.seen))
    asked, moved = (answers(bundle, recording, sampling, blank=blank) for blank in (False, True))
    wanted = ~asked.is_seen
    ways = {
        "black picture": (asked.mean, asked.variance),
        "state moved on": (moved.mean, moved.variance),
        "last answer held": (held(given, asked), None),
    }
    return [
        {"condition": f"{sampling.name}, {way}", **scores(asked.truth, mean, variance, wanted)}
        for way, (mean, variance) in ways.items()
    ]


def summary(rows: Sequence[dict]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the seeds of each model and condition."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["model"], row["kind"], row["condition"], row["n_seen"]].append(row)
    result = []
    for (model, kind, condition, n_seen), members in groups.items():
        mse = np.array([row["mse"] for row in members])
        result.append(
            {
                "model": model,
                "kind": kind,
                "condition": condition,
                "n_seen": n_seen,
                "n_seeds": len(members),
                "mse": float(mse.mean()),
                "std": float(mse.std(ddof=1)) if len(mse) > 1 else None,
                **{
                    key: float(np.mean([row[key] for row in members]))
                    for key in ("standard_error", "degrees", "nll", "coverage")
                    if key in members[0]
                },
            }
        )
    return result


def table(rows: Sequence[dict]) -> Table:
    """One line a condition, one column a model."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["condition"], row["model"]): _shown(row) for row in rows}
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    result.add_column("condition")
    for model in models:
        result.add_column(model.removeprefix("pendulum-"), justify="right")
    for condition in dict.fromkeys(row["condition"] for row in rows):
        result.add_row(condition, *(cells.get((condition, model), "") for model in models))
    return result


def _shown(row: dict) -> str:
    spread = f" ({1e3 * row['std']:.2f})" if row["std"] is not None else ""
    return f"{1e3 * row['mse']:.2f}{spread}"


def write(report: dict, bundles: Sequence[Bundle], recording: Recording, folder: Path) -> list[Path]:
    """results.json, tables.md, error over density, and the angle of one sequence with its band, of the first model."""
    from kws_s5 import plots  # matplotlib is loaded when something is drawn

    paths = [folder / name for name in ("results.json", "tables.md", "density.png", "angle.png")]
    write_json(paths[0], report)
    write_text(paths[1], markdown(report))
    dense = [row for row in report["summary"] if row["kind"] == "seen" and row["condition"] in DENSITIES]
    plots.error_by_density([{**row, "mse": 1e3 * row["mse"]} for row in dense], paths[2])
    shown = Recording(recording.images[: SHOWN + 1], recording.angles[: SHOWN + 1])
    last = len(shown) - 1
    given = answers(bundles[0], shown, samplings(len(shown))[0])
    fine = shown.angles[last].ravel()
    plots.band(
        given.times[last] / 100,
        targets(fine),
        given.mean[last],
        np.sqrt(given.variance[last]),
        paths[3],
        names=("sin", "cos"),
        truth_times=np.arange(len(fine)) / (100 * MOMENTS),
    )
    return paths


if __name__ == "__main__":
    sys.exit(main())
