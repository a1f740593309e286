"""The folder of a run: one process in it at a time, not overwritten by accident, resumed with the same options.

What an earlier run left is removed only when the new one is about to start: a mistake in the options costs nothing.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_only

from kws_s5.atomic import write_json
from kws_s5.bundle import MODEL_FILE
from kws_s5.config import RunConfig, from_dict, to_dict
from kws_s5.errors import UserError
from kws_s5.lock import locked
from kws_s5.training.keeper import CHECKPOINT, LOG

CONFIG, RESULTS, CONFUSION, CURVES = "config.json", "results.json", "confusion.png", "curves.png"
FILES = (CONFIG, RESULTS, CONFUSION, CURVES, LOG, CHECKPOINT, MODEL_FILE)
# what may change when a run goes on: nothing of these enters the weights on the same kind of device
FREE = {"training.out", "training.progress", "training.n_workers", "training.save_minutes", "training.save_steps",
        "training.accelerator", "training.strategy", "data.cache", "name"}


@contextmanager
def run_folder(out: Path, *, resume: bool, overwrite: bool) -> Iterator[bool]:
    """Holds ``out`` for this process; yields whether there is a run to go on with.

    Raises:
        UserError: another process trains there; or it holds something and neither ``resume`` nor ``overwrite`` is set.
    """
    if rank_zero_only.rank != 0:  # the first process of the machine decides and holds the lock
        yield resume and (out / CHECKPOINT).exists()
        return
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file; choose a folder with --training.out")
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(out / ".lock", wait=False))
        except BlockingIOError:
            raise UserError(f"{out}: another process trains here; wait for it, "
                            "or choose another --training.out") from None
        except OSError as error:
            raise UserError(f"{out}: cannot be written ({error.strerror}); choose another --training.out") from None
        yield _enter(out, resume=resume, overwrite=overwrite)


def _enter(out: Path, *, resume: bool, overwrite: bool) -> bool:
    if (out / CONFIG).exists():
        if resume:
            return True
        if not overwrite:
            raise UserError(f"{out}: holds a run already; add --resume to continue it, --overwrite to start anew, "
                            "or choose another --training.out")
        if not _of_a_run(out / CONFIG):
            raise UserError(f"{out}: its {CONFIG} is not of kws-train; choose another --training.out")
    elif any(not path.name.startswith(".") for path in out.iterdir()):
        raise UserError(f"{out}: not empty, and not a run of kws-train; choose another --training.out")
    return False


def check_config(out: Path, config: RunConfig) -> None:
    """Proves that the run being resumed has the same options."""
    changed = list(_differences(_read(out / CONFIG), to_dict(config)))
    if changed:
        key, old, new = changed[0]
        raise UserError(f"{out}: cannot resume with other options: {key} was {old!r}, now {new!r}")


def check_finished(out: Path, config: RunConfig) -> None:
    """Proves that a finished run had the options given now; those that data complete (model, data) are not compared."""
    old, new = _read(out / CONFIG), to_dict(config)
    for section in ("augment", "optim", "training"):
        for key, was, now in _differences(old.get(section), new[section], section):
            raise UserError(f"{out}: is finished already, with other options: {key} was {was!r}, now {now!r}; "
                            "start anew with --overwrite, or choose another --training.out")


def record_config(out: Path, config: RunConfig, *, resuming: bool) -> None:
    """Writes config.json; a run that does not go on with an earlier one removes its files first."""
    if rank_zero_only.rank != 0:
        return
    for name in () if resuming else FILES:
        (out / name).unlink(missing_ok=True)
    write_json(out / CONFIG, to_dict(config))


def _of_a_run(path: Path) -> bool:
    """Whether a config.json is a run's, also a damaged one; those of other programs are left alone."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return isinstance(config, dict) and {"data", "model", "training"} <= config.keys()


def _read(path: Path) -> dict:
    """The options of a run; those that are newer than it have their defaults, which is what it did."""
    try:
        return to_dict(from_dict(RunConfig, json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"{path}: cannot be read ({error}); start anew with --overwrite") from None


def _differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            name = f"{where}.{key}" if where else key
            if name not in FREE:
                yield from _differences(old.get(key), new.get(key), name)
    elif old != new:
        yield where, old, new
