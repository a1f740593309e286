"""The end of a run: scores of the chosen model, once on the test clips, as results.json, tables and plots.

Legend: K classes.
"""

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from kws_s5 import metrics, plots
from kws_s5.atomic import write_json
from kws_s5.training.run_dir import CONFUSION, CURVES, RESULTS
from kws_s5.training.task import Task

PACKAGES = ("torch", "lightning", "numpy", "numba", "safetensors")


def results_of(
    task: Task,
    *,
    chosen: str,
    validation: dict[str, float],
    test: dict[str, float] | None,
    confusion: np.ndarray | None,
    command: str,
) -> dict[str, Any]:
    """Everything worth knowing about a finished run, as plain JSON values.

    Args:
        chosen: which weights became the model ("epoch 12", "average of the last 500 steps").
        validation, test: scores of that model; test None: the data has no test examples.
        confusion: (K, K) counts on the test clips, row = true class; None for regression.
        command: how the run was started.
    """
    config, progress, splits = task.config, task.progress, task.splits
    return {
        "name": config.name,
        "chosen": chosen,
        "validation": validation,
        "test": test,
        "interval": _interval(confusion),
        "per_class": _per_class(confusion, splits.labels),
        "confusion": None if confusion is None else confusion.tolist(),
        "labels": list(splits.labels),
        "n_train": len(splits.train),
        "n_validation": len(splits.validation),
        "n_test": len(splits.test),
        "n_parameters": sum(p.numel() for p in task.model.parameters()),
        "epochs": progress.epoch,
        "steps": progress.step,
        "seconds": round(progress.seconds, 1),
        "rate": config.model.rate,
        "seed": config.training.seed,
        "data": splits.report,
        "note": splits.note,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }


def write_results(out: Path, task: Task, results: dict[str, Any]) -> None:
    """results.json, curves.png and, for classes, confusion.png in the run's folder."""
    plots.learning_curves(task.progress.rows, out / CURVES)
    if results["confusion"] is not None:
        title = f"{results['name']}, test clips at {results['rate']:g} Hz" if results["rate"] else results["name"]
        plots.confusion(np.array(results["confusion"]), results["labels"], out / CONFUSION, title=title)
    write_json(out / RESULTS, results)  # last: a folder with results.json is a finished run


def versions() -> dict[str, str]:
    """Of everything that can change a figure."""
    from kws_s5 import __version__

    found = {"kws_s5": __version__, "python": platform.python_version(), "platform": sys.platform}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _interval(confusion: np.ndarray | None) -> list[float] | None:
    """95 % interval of the test accuracy."""
    if confusion is None:
        return None
    return list(metrics.wilson_interval(int(confusion.trace()), int(confusion.sum())))


def _per_class(confusion: np.ndarray | None, labels: tuple[str, ...]) -> list[dict] | None:
    if confusion is None or not labels:
        return None
    truth, predicted = np.indices(confusion.shape).reshape(2, -1)
    counts = confusion.reshape(-1)
    return metrics.per_class(np.repeat(truth, counts), np.repeat(predicted, counts), labels)
