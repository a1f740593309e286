"""The pendulum report as Markdown: what training gave, what other conditions do to it, moments never observed."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kws_s5.errors import UserError
from kws_s5.training.run_dir import RESULTS


def training(source: str) -> dict[str, Any] | None:
    """What the run folder ``source`` tells about its training; None: a model file, or not finished."""
    path = Path(source) / RESULTS
    if not path.exists():
        return None
    kept = ("name", "seed", "chosen", "epochs", "n_parameters", "seconds")
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        return {
            **{key: results[key] for key in kept},
            "validation": float(results["validation"]["mse"]),
            "test": float(results["test"]["mse"]),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is not of a finished run ({error}); train it again or name its model") from error


def markdown(report: dict[str, Any]) -> str:
    """Three tables; mean (standard deviation) where there are several seeds. MSE x 1e-3 on the test sequences."""
    parts = []
    if report["training"]:
        parts.append(_reproduction(report["training"]))
    for kind, title in (("seen", "frames seen"), ("query", "never observed")):
        parts.append(_conditions([row for row in report["summary"] if row["kind"] == kind], title))
    return "\n".join(parts)


def _reproduction(runs: Sequence[dict[str, Any]]) -> str:
    groups = defaultdict(list)
    for run in runs:
        groups[run["name"], run["epochs"], run["n_parameters"]].append(run)
    lines = ["| recipe | parameters | epochs | seeds | validation | test MSE x 1e-3 |", "|---|---|---|---|---|---|"]
    for (name, epochs, n_parameters), members in groups.items():
        seeds = ", ".join(str(seed) for seed in sorted(run["seed"] for run in members))
        scores = (_mean([run[split] for run in members]) for split in ("validation", "test"))
        lines.append(f"| {name} | {n_parameters:,} | {epochs} | {seeds} | {' | '.join(scores)} |")
    return "\n".join(lines) + "\n"


def _conditions(rows: Sequence[dict[str, Any]], title: str) -> str:
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["condition"], row["model"]): _cell(row["mse"], row["std"]) for row in rows}
    lines = [f"| {title} | {' | '.join(models)} |", "|---" * (len(models) + 1) + "|"]
    for condition in dict.fromkeys(row["condition"] for row in rows):
        lines.append(f"| {condition} | {' | '.join(cells.get((condition, model), '') for model in models)} |")
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> str:
    return _cell(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def _cell(mean: float, std: float | None) -> str:
    return f"{1e3 * mean:.2f}" + ("" if std is None else f" ({1e3 * std:.2f})")
