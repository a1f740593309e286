"""Training checkpoints: where a run is, written whole or not at all, read without executing anything.

A checkpoint is Lightning's (.ckpt: weights, optimiser) plus ``progress``, the sums of the running epoch and averaged
weights. Lightning restarts an epoch only from its beginning; ours go on at the very next batch.
"""

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from kws_s5.atomic import replacing
from kws_s5.errors import UserError


@dataclass
class Progress:
    """Position in the training, and its history. Plain values."""

    epoch: int = 0  # the running one
    batch: int = 0  # the next one of it
    step: int = 0  # optimiser steps made
    n_train: int = 0  # training examples: a resumed run must find the same
    seconds: float = 0.0  # of training so far
    best: dict[str, float] = field(default_factory=dict)  # validation scores of the best epoch; empty: none yet
    best_epoch: int = 0
    stopped: bool = False  # early
    rows: list[dict[str, float]] = field(default_factory=list)  # one an epoch, for log.csv

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return asdict(self)


class WholeFileIO(TorchCheckpointIO):
    """Checkpoints appear by renaming; loading accepts tensors and plain values only."""

    def save_checkpoint(self, checkpoint: dict, path: str | Path, storage_options: Any = None) -> None:
        """Writes beside the target, flushes, renames."""
        content = io.BytesIO()  # torch writing to a full disk raises something else than an OSError
        torch.save(checkpoint, content)
        with replacing(path) as temporary:
            temporary.write_bytes(content.getbuffer())

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = True) -> dict:
        """Never unpickles classes, whatever is asked for."""
        return read_checkpoint(path)


def read_checkpoint(path: str | Path) -> dict:
    """The checkpoint on the CPU; UserError when it is damaged or holds anything but tensors and plain values."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        checkpoint["progress"] = Progress(**checkpoint["progress"])
    except (UnpicklingError, RuntimeError, EOFError, KeyError, TypeError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path}: not a usable checkpoint of this version ({reason}); start anew with --overwrite"
        ) from error
    return checkpoint
