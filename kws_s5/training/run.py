"""A whole training: data -> model -> epochs -> the model chosen on validation -> results, all in one folder.

    out = train(recipe(), resume=False)     # config.json, log.csv, last.ckpt, model.safetensors, results.json, plots

Stopped at any moment, ``resume=True`` ends with the weights of an uninterrupted run (bit for bit on the same CPU).
"""

import errno
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from rich.console import Console

from kws_s5.bundle import MODEL_FILE
from kws_s5.config import RunConfig
from kws_s5.data.build import build
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError
from kws_s5.model import build_model
from kws_s5.training.checkpoint import WholeFileIO, read_checkpoint
from kws_s5.training.checkpointing import CHECKPOINT, Checkpointing
from kws_s5.training.console import Bar, epoch_line, print_groups
from kws_s5.training.finish import finish, save_model
from kws_s5.training.interrupt import Interrupted, handled
from kws_s5.training.objective import build_objective
from kws_s5.training.precision import usable
from kws_s5.training.prepare import completed, load_weights_of, switch_masks
from kws_s5.training.run_dir import (
    PREVIOUS,
    RESULTS,
    check_config,
    check_finished,
    first_model,
    locked_run_dir,
    record_config,
)
from kws_s5.training.task import Task
from kws_s5.training.tensorboard import TensorBoard

CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # full or read-only disk, quota, size limit
LIGHTNING_LOGGERS = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")


def train(
    config: RunConfig, *, resume: bool = False, overwrite: bool = False, command: str = "", splits: Splits | None = None
) -> Path:
    """Trains and tests; returns the run's folder.

    Args:
        config: of the recipe; what it leaves open (n_outputs, rate, ...) comes from the data.
        resume: go on where the run in this folder stopped; without one, start.
        overwrite: start anew in a folder that holds a run.
        command: how this was started, for results.json.
        splits: data in memory instead of what ``config.data`` describes.

    Raises:
        UserError: anything the caller can mend.
        KeyboardInterrupt: stopped by Ctrl-C or SIGTERM, after saving.
    """
    out = Path(config.training.out or f"runs/{config.name}")
    console = Console(quiet=rank_zero_only.rank != 0, soft_wrap=True, markup=False, highlight=False)
    with (
        locked_run_dir(out, resume=resume, overwrite=overwrite) as resuming,
        _quiet(),
        _matmul_precision(usable(config.training).matmul_precision),
    ):
        if resuming and (out / RESULTS).exists():
            check_finished(out, config)
            console.print(f"{out} is finished already: {out / RESULTS}")
            return out
        if resume and not resuming:
            console.print(f"nothing to resume in {out}: starting")
        elif resuming and not (out / CHECKPOINT).exists():
            console.print(f"{out / CHECKPOINT} is missing: starting anew")
        init = first_model(out, config, resuming=resuming)  # a mistake shows before minutes of preparing data
        splits = splits or build(config.data)
        config = completed(config, splits)
        if resuming:
            check_config(out, config)
        _trainer(config)  # shows mistakes in the options while nothing is written yet
        task = _task(config, splits, out, console, resuming=resuming, init=init)
        record_config(out, config, resuming=resuming, init=init)
        try:
            _fit(task, out, console)
            finish(task, _trainer(config), out, console, command=command)
        except OSError as error:
            if error.errno not in CANNOT_WRITE:
                raise
            reason = f"cannot be written ({error.strerror})"
            raise UserError(f"{out}: {reason}; make room, then go on with --resume") from error
        finally:
            if (out / PREVIOUS).exists():
                console.print(f"this run has not ended: the model that was here before is still {out / PREVIOUS}")
    return out


def _task(config: RunConfig, splits: Splits, out: Path, console: Console, *, resuming: bool, init: str) -> Task:
    """Model and optimiser as they start, or as the checkpoint left them."""
    pl.seed_everything(config.training.seed, verbose=False)
    task = Task(build_model(config.model), build_objective(config), config, splits)
    switch_masks(task.model, config.augment)
    n_parameters = sum(p.numel() for p in task.model.parameters())
    counts = f"{len(splits.train):,} / {len(splits.validation):,} / {len(splits.test):,}"
    console.print(f"{config.name}: {n_parameters:,} parameters; training / validation / test examples: {counts}")
    for note in (*usable(config.training).notes, *splits.report.get("notes", ())):
        console.print(f"note: {note}")
    print_groups(console, task.model, config.optim)
    if resuming and (out / CHECKPOINT).exists():
        _restore(task, out / CHECKPOINT)
        progress = task.progress
        console.print(f"resuming at epoch {progress.epoch + 1}, batch {progress.batch + 1}, step {progress.step}")
    elif init and rank_zero_only.rank == 0:  # whose weights Lightning gives to the other processes
        console.print(load_weights_of(task.model, splits.labels, init))
    task.progress.n_train = len(splits.train)
    return task


def _restore(task: Task, path: Path) -> None:
    checkpoint = read_checkpoint(path)
    progress = checkpoint["progress"]
    if progress.n_train != len(task.splits.train):
        raise UserError(
            f"{path}: was made with {progress.n_train:,} training examples, the data has "
            f"{len(task.splits.train):,} now; restore the data or start anew with --overwrite"
        )
    task.load_state_dict(checkpoint["state_dict"])
    task.progress = progress
    task.restored = checkpoint
    task.average.load(checkpoint["average"])
    if task.streams is not None:
        task.streams.segments.hard = [tuple(place) for place in checkpoint.get("hard", ())]
    task.train_sums = checkpoint["train_sums"] if rank_zero_only.rank == 0 else None


def _fit(task: Task, out: Path, console: Console) -> None:
    """All remaining epochs."""
    training = task.config.training
    if task.progress.epoch >= training.epochs or task.progress.stopped:
        return

    def save_best(task: Task, why: str) -> None:
        save_model(task, out / MODEL_FILE, {"chosen": why, "validation": task.scores})

    def announce(row: dict[str, float], is_best: bool) -> None:
        console.print(epoch_line(row, training.epochs, is_best))

    with handled() as request:
        callbacks = [TensorBoard(out), Checkpointing(out, request, save_best=save_best, announce=announce)]
        if training.progress and console.is_terminal:
            callbacks.insert(0, Bar(console))
        trainer = _trainer(task.config, max_epochs=training.epochs - task.progress.epoch, callbacks=callbacks)
        try:
            trainer.fit(task)
        except Interrupted:
            if not task.progress.best:
                save_model(task, out / MODEL_FILE, {"chosen": f"stopped at step {task.progress.step}"})
            console.print(f"stopped; continue with --resume. Checkpoint and model so far: {out}")
            raise KeyboardInterrupt from None


def _trainer(config: RunConfig, **options: Any) -> pl.Trainer:
    """Lightning's part: devices, processes (torchrun, SLURM), precision, scaling and clipping of gradients, the loop.

    What is switched off, and why:
        logger                   log.csv is written whole after every epoch: a killed run leaves no half line, a
                                 resumed one no line twice; TensorBoard curves are made from it
        enable_checkpointing     ModelCheckpoint goes on at the beginning of an epoch; ours at the very next batch,
                                 with the sums of the running epoch (checkpointing.py)
        enable_progress_bar      it counts an epoch that is entered in the middle from its beginning
        enable_model_summary     the table of optimiser groups says more: learning rate and decay of every group
        num_sanity_val_steps     validation before the first step would count batches and take minutes with long clips
        use_distributed_sampler  it repeats clips until all processes have equally many; ours give every clip once
    ``reload_dataloaders_every_n_epochs``: an epoch's batches are a function of (seed, epoch), wherever it is entered.
    """
    training = config.training
    plugins: list[Any] = [WholeFileIO()]
    if training.nodes > 1 and "MASTER_ADDR" not in os.environ and not SLURMEnvironment.detect():
        raise UserError(
            f"training.nodes = {training.nodes}: start the command on every machine with torchrun or srun, "
            "as docs/processes.md shows; alone it would wait for the others without end"
        )
    if SLURMEnvironment.detect():
        plugins.append(SLURMEnvironment(auto_requeue=False))  # requeued jobs say --resume themselves
    try:
        return pl.Trainer(
            accelerator=training.accelerator,
            devices=training.devices,
            num_nodes=training.nodes,
            strategy=training.strategy,
            precision=usable(training).precision,
            gradient_clip_val=config.optim.clip_norm or None,
            plugins=plugins,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
            **options,
        )
    except (ValueError, ImportError, pl.utilities.exceptions.MisconfigurationException) as error:
        raise UserError(f"training: {str(error).splitlines()[0]}") from error


@contextmanager
def _matmul_precision(wanted: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's advice on loaders and loggers does not apply here, and its banners are not ours."""
    loggers = [logging.getLogger(name) for name in LIGHTNING_LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
