"""After the last epoch: averaged weights or the best epoch, by validation; then the test, once."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from rich.console import Console
from torch.utils.data import Dataset

from kws_s5.bundle import MODEL_FILE, Bundle, load
from kws_s5.errors import UserError
from kws_s5.training.console import print_results, quantity
from kws_s5.training.objective import Sums, better
from kws_s5.training.results import results_of, write_results
from kws_s5.training.run_dir import remove_previous
from kws_s5.training.task import Task
from kws_s5.training.unknown_bias import can_fit, fit_unknown


def finish(task: Task, trainer: pl.Trainer, out: Path, console: Console, *, command: str) -> None:
    """Chooses the model, tests it, and writes and prints the results."""
    chosen, validation = choose(task, trainer, out, console)
    if task.config.training.fit_unknown and can_fit(task.config.model, task.splits.labels):
        offset = fit_unknown(
            task.model, task.splits.labels, task.splits.validation, batch_size=task.config.training.batch_size
        )
        validation, _ = evaluate(task, trainer, task.splits.validation)
        chosen = f"{chosen}, {offset:+.1f} on the clip logit of _unknown_"
        console.print(
            f"clip decision for _unknown_ moved by {offset:+.1f}: validation accuracy "
            f"{quantity('accuracy', validation['accuracy'])}"
        )
    test, confusion = None, None
    if len(task.splits.test):
        test, sums = evaluate(task, trainer, task.splits.test)
        confusion = sums["confusion"].cpu().numpy() if "confusion" in sums else None
    if rank_zero_only.rank != 0:
        return
    save_model(task, out / MODEL_FILE, {"chosen": chosen, "validation": validation, "test": test})
    remove_previous(out)  # before results.json, which says that the run has ended
    results = results_of(task, chosen=chosen, validation=validation, test=test, confusion=confusion, command=command)
    write_results(out, task, results)
    print_results(console, results)
    console.print(f"results, plots and the model ({MODEL_FILE}) are in {out}")


def choose(task: Task, trainer: pl.Trainer, out: Path, console: Console) -> tuple[str, dict[str, float]]:
    """Leaves the chosen weights in ``task.model``; returns what they are and their validation scores."""
    progress, objective = task.progress, task.objective
    if not progress.best:  # of a version that went on after a validation without numbers
        raise UserError(
            f"{out}: no epoch gave numbers on the validation clips: training diverged; start anew with "
            "--overwrite and a lower --optim.lr and --optim.ssm-lr"
        )
    averaged = task.average.weights()
    if averaged is not None:
        task.model.load_state_dict(averaged)
        scores, _ = evaluate(task, trainer, task.splits.validation)
        name = objective.monitor
        console.print(
            f"averaged weights: validation {quantity(name, scores[name])} "
            f"(best epoch: {quantity(name, progress.best[name])})"
        )
        if better(objective, scores, progress.best):
            return "averaged weights", scores
    best = load(out / MODEL_FILE)
    task.model.load_state_dict(best.model.state_dict())
    return f"epoch {progress.best_epoch}", progress.best


def evaluate(task: Task, trainer: pl.Trainer, dataset: Dataset) -> tuple[dict[str, float], Sums]:
    """Scores of the task's current weights on ``dataset``, and the sums they come from, over all processes."""
    task.evaluated = dataset
    trainer.validate(task, verbose=False)
    return task.scores, task.evaluation_sums


def save_model(task: Task, path: Path, metrics: dict[str, Any]) -> None:
    """The task's current weights as a model file (first process only)."""
    if rank_zero_only.rank == 0:
        splits = task.splits
        Bundle(task.model, task.config, splits.labels, splits.vocabulary, note=splits.note, metrics=metrics).save(path)
