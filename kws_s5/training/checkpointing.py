"""What must not be lost: checkpoints, the best model so far, the log; early stopping and stopping on request."""

import csv
import io
import math
import time
from collections.abc import Callable
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch.distributed as dist

from kws_s5.atomic import write_text
from kws_s5.errors import UserError
from kws_s5.training.interrupt import Interrupted, StopRequest
from kws_s5.training.objective import better
from kws_s5.training.task import Task, reduced

CHECKPOINT = "last.ckpt"
LOG = "log.csv"


class Checkpointing(pl.Callback):
    """Saves and watches one run."""

    def __init__(
        self,
        out: Path,
        request: StopRequest,
        *,
        save_best: Callable[[Task, str], None],
        announce: Callable[[dict[str, float], bool], None],
    ) -> None:
        """save_best(task, why): writes the model file; announce(row, is_best): tells the user about an epoch."""
        self.out, self.request, self.save_best, self.announce = out, request, save_best, announce
        self.saved_at = self.counted_at = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, task: Task) -> None:
        """Takes the signals back from Lightning, which has just taken them."""
        self.request.install()
        self.saved_at = self.counted_at = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, task: Task, *batch: object) -> None:
        """Averages weights; saves when it is time to; stops when asked to."""
        training, progress = task.config.training, task.progress
        if progress.step > training.average_from * task.n_steps:
            task.average.update(task.model)
        minutes = (time.monotonic() - self.saved_at) / 60
        due = bool(training.save_minutes) and minutes >= training.save_minutes
        stop, due = _agreed(trainer, self.request.asked, due)
        due = due or bool(training.save_steps) and progress.step % training.save_steps == 0
        if progress.batch == task.batches.n_batches:
            return  # the epoch's end, with its validation, saves everything
        if due or stop:
            self.save(trainer, task)
        if stop:
            raise Interrupted

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Task) -> None:
        """After validation: log, best model, checkpoint."""
        progress, config = task.progress, task.config
        progress.epoch, progress.batch = progress.epoch + 1, 0
        self._count_time(task)
        row = _row(trainer, task)
        for part in ("train", "validation"):
            if not math.isfinite(loss := row[f"{part}_loss"]):
                raise UserError(
                    f"training diverged in epoch {progress.epoch}: the {part} loss is {loss}; "
                    "try a lower --optim.lr and --optim.ssm-lr, or --optim.clip-norm 1"
                )
        progress.rows.append(row)
        task.train_sums = None
        is_best = better(task.objective, task.scores, progress.best or None)
        if is_best:
            progress.best, progress.best_epoch = dict(task.scores), progress.epoch
            self.save_best(task, f"epoch {progress.epoch}")
        waited = progress.epoch - progress.best_epoch
        progress.stopped = bool(config.training.patience) and waited >= config.training.patience
        if trainer.is_global_zero:
            write_log(self.out / LOG, progress.rows)
        self.save(trainer, task)
        self.announce(row, is_best)
        trainer.should_stop = progress.stopped
        if _agreed(trainer, self.request.asked, False)[0] and progress.epoch < config.training.epochs:
            raise Interrupted

    def save(self, trainer: pl.Trainer, task: Task) -> None:
        """Writes the checkpoint (called by all processes together)."""
        self._count_time(task)
        task.share_train_sums()
        trainer.save_checkpoint(self.out / CHECKPOINT)
        self.saved_at = time.monotonic()

    def _count_time(self, task: Task) -> None:
        now = time.monotonic()
        task.progress.seconds += now - self.counted_at
        self.counted_at = now


def write_log(path: Path, rows: list[dict[str, float]]) -> None:
    """All rows so far as CSV, atomically: a killed run leaves no half line and no line twice."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _row(trainer: pl.Trainer, task: Task) -> dict[str, float]:
    """One line of the log: epoch, step, learning rate, scores, seconds."""
    progress = task.progress
    train = task.objective.scores(reduced(task.train_sums))
    rate = max(group["lr"] for group in trainer.optimizers[0].param_groups)
    return {
        "epoch": progress.epoch,
        "step": progress.step,
        "lr": rate,
        **{f"train_{name}": value for name, value in train.items()},
        **{f"validation_{name}": value for name, value in task.scores.items()},
        "seconds": round(progress.seconds, 3),
    }


def _agreed(trainer: pl.Trainer, stop: bool, due: bool) -> tuple[bool, bool]:
    """Stop if any process was asked to; save if any clock says so: processes act together or they would deadlock."""
    if trainer.world_size == 1:
        return stop, due
    flags = torch.tensor([float(stop), float(due)], device=trainer.strategy.root_device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags[0]), bool(flags[1])
