"""What a person sees of a training: groups, a progress bar with loss and accuracy, a line an epoch, results."""

import time

import lightning.pytorch as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

from kws_s5.config import OptimConfig
from kws_s5.training.optim import parameter_groups
from kws_s5.training.task import Task

PERIOD = 0.25  # seconds between looks at the running loss; each look waits for the device


def print_groups(console: Console, model: nn.Module, config: OptimConfig) -> None:
    """The optimiser groups: how many tensors and parameters train at which rate and decay."""
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    table = Table(title=f"optimiser groups ({config.groups})", title_justify="left")
    for column in ("group", "tensors", "parameters", "learning rate", "weight decay"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for group in parameter_groups(model, config):
        n = sum(sizes[name] for name in group.parameters)
        table.add_row(group.name, str(len(group.parameters)), f"{n:,}", f"{group.lr:g}", f"{group.weight_decay:g}")
    console.print(table)


def epoch_line(row: dict[str, float], n_epochs: int, is_best: bool) -> str:
    """One finished epoch in one line."""
    scores = "  ".join(
        f"{split} {quantity(name, row[f'{split}_{name}'])}"
        for split in ("train", "validation")
        for name in ("loss", "accuracy", "mse")
        if f"{split}_{name}" in row
    )
    return f"epoch {int(row['epoch'])}/{n_epochs}  {scores}  {row['seconds']:.0f} s{'  *' if is_best else ''}"


def quantity(name: str, value: float) -> str:
    """A score as people read it: accuracies in percent, squared errors times a thousand."""
    if name == "accuracy":
        return f"accuracy {100 * value:.2f} %"
    return f"mse {1000 * value:.3f}e-3" if name == "mse" else f"{name} {value:.4f}"


def print_results(console: Console, results: dict) -> None:
    """Validation and test scores, then precision, recall and F1 of every class."""
    table = Table(title=f"results of {results['name']} ({results['chosen']})", title_justify="left")
    names = list(results["validation"])
    table.add_column("clips")
    for name in names:
        table.add_column({"mse": "mse x 1e-3", "accuracy": "accuracy %"}.get(name, name), justify="right")
    for split in ("validation", "test"):
        if results[split]:
            scores = (quantity(name, results[split][name]).split()[1].removesuffix("e-3") for name in names)
            table.add_row(split, *scores)
    console.print(table)
    if results["per_class"]:
        classes = Table(title="test clips by class (%)", title_justify="left")
        for column in ("class", "precision", "recall", "F1", "clips"):
            classes.add_column(column, justify="left" if column == "class" else "right")
        for row in results["per_class"]:
            scores = ("-" if row[k] is None else f"{100 * row[k]:.1f}" for k in ("precision", "recall", "f1"))
            classes.add_row(row["label"], *scores, str(row["n"]))
        console.print(classes)


class Bar(pl.Callback):
    """A bar over the batches of the running epoch, in terminals only; it disappears when the epoch is done."""

    def __init__(self, console: Console) -> None:
        self.console, self.looked_at = console, 0.0
        self.bar: Progress | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, task: Task) -> None:
        """A new bar."""
        self._close()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[scores]}"),
            console=self.console,
            transient=True,
        )
        self.bar.start()
        epoch = f"epoch {task.progress.epoch + 1}/{task.config.training.epochs}"
        self.line = self.bar.add_task(epoch, total=task.batches.n_batches, completed=task.progress.batch, scores="")

    def on_train_batch_end(self, trainer: pl.Trainer, task: Task, *batch: object) -> None:
        """One batch further; the running scores now and then."""
        if self.bar and time.monotonic() - self.looked_at > PERIOD:
            scores = task.objective.scores(task.train_sums)
            text = "  ".join(quantity(name, value) for name, value in scores.items())
            self.bar.update(self.line, completed=task.progress.batch, scores=text)
            self.looked_at = time.monotonic()

    def on_validation_start(self, trainer: pl.Trainer, task: Task) -> None:
        """Says that the model is being validated."""
        if self.bar:
            self.bar.update(self.line, completed=task.progress.batch, scores="validation ...")

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Task) -> None:
        """The bar goes."""
        self._close()

    def on_exception(self, trainer: pl.Trainer, task: Task, exception: BaseException) -> None:
        """The terminal must be left in order."""
        self._close()

    def _close(self) -> None:
        if self.bar:
            self.bar.stop()
        self.bar = None
