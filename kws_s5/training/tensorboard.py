"""The log's rows as TensorBoard curves beside log.csv, where the tensorboard package is installed."""

from pathlib import Path

import lightning.pytorch as pl

from kws_s5.training.task import Task


class TensorBoard(pl.Callback):
    """One scalar a column and epoch, in the run's folder under tensorboard/."""

    def __init__(self, out: Path) -> None:
        self.folder, self.written = out / "tensorboard", None

    def on_fit_start(self, trainer: pl.Trainer, task: Task) -> None:
        """Rows of before a resume are in the folder already."""
        self.written = len(task.progress.rows)

    def on_train_epoch_start(self, trainer: pl.Trainer, task: Task) -> None:
        """Writes what has been logged since."""
        self._write(trainer, task)

    def on_train_end(self, trainer: pl.Trainer, task: Task) -> None:
        """The last epoch."""
        self._write(trainer, task)

    def _write(self, trainer: pl.Trainer, task: Task) -> None:
        rows = task.progress.rows[self.written :]
        if not rows or not trainer.is_global_zero:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        with SummaryWriter(str(self.folder)) as writer:
            for row in rows:
                for name, value in row.items():
                    if name not in ("epoch", "step"):
                        writer.add_scalar(name.replace("_", "/", 1), value, int(row["epoch"]))
        self.written = len(task.progress.rows)
