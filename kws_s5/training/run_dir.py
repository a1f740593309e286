"""The folder of a run: one process in it at a time, not overwritten by accident, resumed with the same options.

What an earlier run left is removed only when the new one is about to start: a mistake in the options costs nothing. Its
model stays, as model.previous.safetensors, until the new run has ended.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lightning.pytorch.utilities.rank_zero import rank_zero_only

from kws_s5.atomic import json_text, replacing, write_text
from kws_s5.bundle import MODEL_FILE, find
from kws_s5.config import RunConfig, from_dict, to_dict
from kws_s5.config.run import differences
from kws_s5.errors import UserError
from kws_s5.lock import locked
from kws_s5.training.checkpointing import CHECKPOINT, LOG

CONFIG, RESULTS, CONFUSION, CURVES = "config.json", "results.json", "confusion.png", "curves.png"
LOCK = ".lock"
FILES = (RESULTS, CONFUSION, CURVES, LOG, CHECKPOINT)  # goes when a run starts anew
PREVIOUS = "model.previous.safetensors"  # of the run that is being replaced
INIT = "init.safetensors"  # the model this run started from: its source may change or be replaced by this very run
# what may change when a run goes on: nothing of these enters the weights on the same kind of device
FREE = {
    "training.out",
    "training.progress",
    "training.n_workers",
    "training.save_minutes",
    "training.save_steps",
    "training.accelerator",
    "training.strategy",
    "data.cache",
    "name",
}


@contextmanager
def locked_run_dir(out: Path, *, resume: bool, overwrite: bool) -> Iterator[bool]:
    """Holds ``out`` for this process; yields whether there is a run to go on with.

    Raises:
        UserError: another process trains there; or it holds something and neither ``resume`` nor ``overwrite`` is set.
    """
    if rank_zero_only.rank != 0:  # the first process of the machine decides and holds the lock
        yield resume and (out / CHECKPOINT).exists()
        return
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file; choose a folder with --training.out")
    new = not out.exists()
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(out / LOCK, wait=False))
        except BlockingIOError:
            raise UserError(
                f"{out}: another process trains here; wait for it, or choose another --training.out"
            ) from None
        except OSError as error:
            raise UserError(f"{out}: cannot be written ({error.strerror}); choose another --training.out") from None
        if new:
            stack.callback(_remove_unused, out)
        yield _enter(out, resume=resume, overwrite=overwrite)


def _remove_unused(out: Path) -> None:
    """A mistake leaves no folder behind that was not there (called while the lock is held)."""
    with suppress(OSError):
        if [path.name for path in out.iterdir()] == [LOCK]:
            (out / LOCK).unlink()
            out.rmdir()


def _enter(out: Path, *, resume: bool, overwrite: bool) -> bool:
    if (out / CONFIG).exists():
        if resume:
            return True
        if not overwrite:
            raise UserError(
                f"{out}: holds a run already; add --resume to continue it, --overwrite to start anew, "
                "or choose another --training.out"
            )
        if not _of_a_run(out / CONFIG):
            raise UserError(f"{out}: its {CONFIG} is not of kws-train; choose another --training.out")
    elif any(not path.name.startswith(".") for path in out.iterdir()):
        raise UserError(f"{out}: not empty, and not a run of kws-train; choose another --training.out")
    return False


def check_config(out: Path, config: RunConfig) -> None:
    """Proves that the run being resumed has the same options."""
    changed = list(differences(_read(out / CONFIG), to_dict(config), free=FREE))
    if changed:
        key, old, new = changed[0]
        raise UserError(f"{out}: cannot resume with other options: {key} was {old!r}, now {new!r}")


def check_finished(out: Path, config: RunConfig) -> None:
    """Proves that a finished run had the options given now; those that data complete (model, data) are not compared."""
    old, new = _read(out / CONFIG), to_dict(config)
    for section in ("augment", "optim", "training"):
        for key, was, now in differences(old.get(section), new[section], section, free=FREE):
            raise UserError(
                f"{out}: is finished already, with other options: {key} was {was!r}, now {now!r}; "
                "start anew with --overwrite, or choose another --training.out"
            )


def first_model(out: Path, config: RunConfig, *, resuming: bool) -> str:
    """The model to start from (name, file or run folder), or "": on resuming the run's own copy of it.

    Only the first process asks; the others get its weights. UserError: there is no such model.
    """
    init = config.training.init
    if not init or rank_zero_only.rank != 0:
        return init
    if resuming and (out / INIT).exists():
        return str(out / INIT)
    # a run that replaces its own start was stopped and is begun again: what it had reached is not where it starts
    itself = Path(init).expanduser().resolve() in (out.resolve(), (out / MODEL_FILE).resolve())
    if itself and (out / PREVIOUS).exists():
        return str(out / PREVIOUS)
    find(init)
    return init


def record_config(out: Path, config: RunConfig, *, resuming: bool, init: str = "") -> None:
    """Writes config.json; a run that has no checkpoint to go on from copies ``init`` and removes what was here first.

    The old config.json stays until the new one replaces it: killed in between, the folder is still a run's.
    """
    if rank_zero_only.rank != 0:
        return
    text = json_text(to_dict(config))
    if not (resuming and (out / CHECKPOINT).exists()):
        _clear(out, find(init) if init else None)
    write_text(out / CONFIG, text)


def _clear(out: Path, init: Path | None) -> None:
    if init is None:
        (out / INIT).unlink(missing_ok=True)
    else:
        with replacing(out / INIT) as temporary:
            shutil.copyfile(init, temporary)
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    if (out / PREVIOUS).exists():  # no run has ended since: what else is here knows less
        (out / MODEL_FILE).unlink(missing_ok=True)
    elif (out / MODEL_FILE).exists():
        os.replace(out / MODEL_FILE, out / PREVIOUS)


def remove_previous(out: Path) -> None:
    """Removes the model of the run that was replaced: this one has ended and has a model of its own."""
    (out / PREVIOUS).unlink(missing_ok=True)


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
