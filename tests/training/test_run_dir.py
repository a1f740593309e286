"""The folder of a run: nothing is lost by a mistake, a crash or --overwrite before there is something better."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from toys import breaking, fail, interrupt, log, tones, toy_config

from kws_s5.bundle import load
from kws_s5.config import KeywordData
from kws_s5.errors import UserError
from kws_s5.lock import locked
from kws_s5.training.run import train
from kws_s5.training.run_dir import INIT, PREVIOUS, locked_run_dir, record_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        toy_config(out=str(tmp_path_factory.mktemp("runs") / "run"), epochs=2, average_from=0.5), splits=tones()
    )


@pytest.fixture
def old(finished: Path, tmp_path: Path) -> Path:
    """A finished run that may be changed."""
    return shutil.copytree(finished, tmp_path / "run")


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load(path).model.state_dict()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_an_existing_run_is_not_overwritten_by_accident(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--resume.*--overwrite.*--training.out"):
        train(toy_config(out=str(finished)), splits=tones())
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="not a run of kws-train"):
        train(toy_config(out=str(tmp_path)), splits=tones())
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a file"):
        train(toy_config(out=str(tmp_path / "file")), splits=tones())


def test_overwrite_starts_anew_and_leaves_other_files(tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path), epochs=1)
    train(config, splits=tones())
    (tmp_path / "notes.txt").write_text("mine")
    train(replace(config, training=replace(config.training, epochs=2)), splits=tones(), overwrite=True)
    assert len(log(tmp_path)) == 2 and (tmp_path / "notes.txt").read_text() == "mine"


def test_a_mistake_never_costs_the_run_that_was_to_be_overwritten(finished: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    config = toy_config(out=str(out))
    for wrong in ({"init": "nowhere"}, {"accelerator": "abacus"}, {"accelerator": "tpu"}, {"precision": "7"}):
        with pytest.raises(UserError, match=r"nowhere|training: "):
            train(replace(config, training=replace(config.training, **wrong)), splits=tones(), overwrite=True)
    with pytest.raises(UserError, match="no such folder"):
        train(replace(config, data=KeywordData(str(tmp_path / "nowhere"))), overwrite=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_mistake_leaves_no_run_behind(tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path / "run"), epochs=1)
    with pytest.raises(UserError, match="training: "):
        train(replace(config, training=replace(config.training, accelerator="abacus")), splits=tones())
    train(config, splits=tones())  # without --overwrite


def test_overwrite_is_for_runs_only(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("not ours")
    with pytest.raises(UserError, match="not a run of kws-train"):
        train(toy_config(out=str(tmp_path)), splits=tones(), overwrite=True)
    (tmp_path / "config.json").write_text('{"architectures": ["of another program"]}')
    with pytest.raises(UserError, match="not of kws-train"):
        train(toy_config(out=str(tmp_path)), splits=tones(), overwrite=True)
    assert (tmp_path / "model.safetensors").read_text() == "not ours"


def test_a_run_may_start_from_the_model_it_replaces(finished: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    train(toy_config(out=str(out), epochs=1, init=str(out)), splits=tones(), overwrite=True)
    assert len(log(out)) == 1


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "run" / ".lock"), pytest.raises(UserError, match="another process trains here"):
        train(toy_config(out=str(tmp_path / "run")), splits=tones())


def test_a_mistake_removes_the_folder_it_was_to_fill_but_no_other(tmp_path: Path) -> None:
    data = KeywordData(str(tmp_path / "nowhere"))
    there = tmp_path / "there"
    there.mkdir()
    for name in ("new", "there"):
        with pytest.raises(UserError, match="no such folder"):
            train(replace(toy_config(out=str(tmp_path / name)), data=data))
    assert there.is_dir() and not (tmp_path / "new").exists()


def test_what_cannot_be_written_costs_nothing(old: Path) -> None:
    before = {path: path.read_bytes() for path in old.iterdir() if path.is_file()}
    config = toy_config(out=str(old))
    object.__setattr__(config.optim, "lr", float("nan"))  # past the check of the options
    with pytest.raises(ValueError, match="JSON"):
        record_config(old, config, resuming=False)
    assert {path: path.read_bytes() for path in old.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("at", "accident", "ends"),
    [
        (1, fail, "power cut"),
        (1, interrupt, None),
        (20, interrupt, None),
        (28, fail, "power cut"),
        (40, interrupt, None),
    ],
)
def test_the_old_model_stays_until_the_new_run_has_ended(
    old: Path, at: int, accident, ends: str | None, capsys: pytest.CaptureFixture
) -> None:
    """Also when --overwrite is tried again and again; then it goes."""
    model, config = weights(old), toy_config(out=str(old), epochs=2, seed=1)
    for _ in range(2):
        with pytest.raises((RuntimeError, KeyboardInterrupt), match=ends):
            train(config, splits=breaking(at, accident), overwrite=True)
        assert same(weights(old / PREVIOUS), model) and str(old / PREVIOUS) in capsys.readouterr().out
    train(config, splits=tones(), resume=True)
    assert not (old / PREVIOUS).exists() and not same(weights(old), model) and PREVIOUS not in capsys.readouterr().out


def test_a_run_that_replaces_its_own_start_begins_again_where_it_began(old: Path) -> None:
    model, config = weights(old), toy_config(out=str(old), init=str(old), epochs=2)
    for at in (1, 40):  # stopped before and after an epoch has given a model
        with pytest.raises(KeyboardInterrupt):
            train(config, splits=breaking(at, interrupt), overwrite=True)
        assert same(weights(old / INIT), model) and same(weights(old / PREVIOUS), model)
        assert not same(weights(old), model)
        (old / "model.safetensors").unlink()  # as if it had been killed before the first epoch


def test_a_run_without_its_checkpoint_says_that_it_starts_anew_and_keeps_the_model(
    old: Path, capsys: pytest.CaptureFixture
) -> None:
    model = weights(old)
    (old / "last.ckpt").unlink()
    (old / "results.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        train(toy_config(out=str(old), epochs=2, average_from=0.5), splits=breaking(40, interrupt), resume=True)
    assert "last.ckpt is missing: starting anew" in capsys.readouterr().out.replace("\n", "")
    assert same(weights(old / PREVIOUS), model)


def test_results_never_stand_beside_the_model_that_was_replaced(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next --overwrite would take the older model for the one to keep."""

    def write(out: Path, *_: object) -> None:
        assert not (out / PREVIOUS).exists() and (out / "model.safetensors").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("kws_s5.training.finish.write_results", write)
    with pytest.raises(KeyboardInterrupt):
        train(toy_config(out=str(old), epochs=1), splits=tones(), overwrite=True)


def test_a_diverged_training_leaves_the_old_model(old: Path) -> None:
    model, config = weights(old), toy_config(out=str(old))
    with pytest.raises(UserError, match="diverged"):
        train(replace(config, optim=replace(config.optim, lr=1e30, ssm_lr=1e30)), splits=tones(), overwrite=True)
    assert same(weights(old / PREVIOUS), model) and not (old / "results.json").exists()


def test_an_overwrite_killed_while_it_starts_leaves_a_run_and_its_model(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any of its file operations, in a folder that holds other things too."""
    (old / "notes").mkdir()
    model, config, n_killed = weights(old), toy_config(out=str(old), init=str(old)), 0
    for count in range(12):
        run, left = shutil.copytree(old, old.parent / str(count)), [count]

        def dies(call, *args, left=left, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return call(*args, **options)

        with monkeypatch.context() as patch:
            unlink = Path.unlink
            patch.setattr(Path, "unlink", lambda path, dies=dies, unlink=unlink, **o: dies(unlink, path, **o))
            patch.setattr(os, "replace", partial(dies, os.replace))
            try:
                record_config(run, config, resuming=False, init=str(run))
            except Killed:
                n_killed += 1
        kept = next(path for path in (run / PREVIOUS, run / "model.safetensors") if path.exists())
        assert same(weights(kept), model)
        with locked_run_dir(run, resume=False, overwrite=True):
            record_config(run, config, resuming=False, init=str(kept))
        assert same(weights(run / INIT), model) and same(weights(run / PREVIOUS), model)
    assert 8 <= n_killed < 12


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("at", [1, 20])
def test_a_run_that_replaces_the_model_it_starts_from_resumes_from_that_model(
    old: Path, tmp_path: Path, at: int
) -> None:
    """Killed before there is any checkpoint, it ends as a run that nobody killed, with another folder's copy."""
    shutil.copytree(old, tmp_path / "source")
    settings = {"epochs": 1, "seed": 1}
    whole = train(toy_config(out=str(tmp_path / "whole"), init=str(tmp_path / "source"), **settings), splits=tones())
    config = toy_config(out=str(old), init=str(old), **settings)
    with pytest.raises(RuntimeError):
        train(config, splits=breaking(at, fail), overwrite=True)
    assert not (old / "last.ckpt").exists()
    train(config, splits=tones(), resume=True)
    assert same(weights(old), weights(whole))


def test_a_run_resumes_from_the_model_it_started_from_although_that_has_changed(old: Path, tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path / "tuned"), epochs=1, init=str(old))
    with pytest.raises(RuntimeError):
        train(config, splits=breaking(5, fail))
    first = (tmp_path / "tuned" / INIT).read_bytes()
    train(toy_config(out=str(old), epochs=1, seed=5), splits=tones(), overwrite=True)
    train(config, splits=tones(), resume=True)
    assert (tmp_path / "tuned" / INIT).read_bytes() == first
    train(replace(config, training=replace(config.training, init="")), splits=tones(), overwrite=True)
    assert not (tmp_path / "tuned" / INIT).exists()
