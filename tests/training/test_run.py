"""A run from data to results: it learns, writes what it promises, refuses what it must, fine-tunes."""

import json
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import LABELS, Tones, log, tones, toy_config

from kws_s5.bundle import load
from kws_s5.config import GaussianHead, LinearFront, RunConfig, from_dict
from kws_s5.data.batch import Example, collate
from kws_s5.errors import UserError
from kws_s5.training import precision
from kws_s5.training.run import train


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(out=str(tmp_path_factory.mktemp("runs") / "run"), epochs=40, label_smoothing=0.05)
    return train(config, splits=tones(), command="kws-train toy")


def test_a_toy_model_learns(finished: Path) -> None:
    rows = log(finished)
    assert rows[-1]["train_loss"] < 0.5 * rows[0]["train_loss"]
    assert json.loads((finished / "results.json").read_text())["test"]["accuracy"] > 0.8


def test_the_folder_holds_what_a_run_promises(finished: Path) -> None:
    names = {path.name for path in finished.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert names == {
        "config.json",
        "log.csv",
        "last.ckpt",
        "model.safetensors",
        "results.json",
        "confusion.png",
        "curves.png",
    }
    assert not list(finished.glob(".*.*"))  # no temporary file is left


def test_the_log_has_one_row_an_epoch(finished: Path) -> None:
    rows = log(finished)
    assert [row["epoch"] for row in rows] == list(range(1, 41))
    assert [row["step"] for row in rows] == [4 * e for e in range(1, 41)]
    assert rows[0]["lr"] == 0.02 and rows[-1]["lr"] == 0.0


def test_results_agree_with_the_model_file(finished: Path) -> None:
    """Accuracy and confusion recomputed clip by clip from model.safetensors."""
    results, bundle, test = json.loads((finished / "results.json").read_text()), load(finished), tones().test
    confusion = torch.zeros(3, 3, dtype=torch.int64)
    for i in range(len(test)):
        confusion[int(test[i].y), int(bundle.logits(collate([test[i]])).argmax())] += 1
    assert results["confusion"] == confusion.tolist()
    assert results["test"]["accuracy"] == pytest.approx(confusion.trace().item() / 15)
    assert [row["n"] for row in results["per_class"]] == [5, 5, 5]
    assert bundle.metrics["test"] == results["test"] and bundle.labels == LABELS
    best = max(log(finished), key=lambda row: (row["validation_accuracy"], -row["validation_loss"]))
    assert results["chosen"] == f"epoch {int(best['epoch'])}"
    assert (results["command"], results["seed"], results["n_train"]) == ("kws-train toy", 0, 30)
    assert results["data"] == {"source": "sines"} and torch.__version__.startswith(results["versions"]["torch"])


def test_config_json_rebuilds_the_config_with_what_the_data_said(finished: Path) -> None:
    config = from_dict(RunConfig, json.loads((finished / "config.json").read_text()))
    assert config.model.n_outputs == 3 and config == load(finished).config


def test_early_stopping_waits_for_patience_and_stays_stopped(tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path / "run"), epochs=30, patience=2)
    config = replace(config, optim=replace(config.optim, lr=1e-12, ssm_lr=1e-12))
    splits = tones()
    splits.train.moving = False
    out = train(config, splits=splits)
    rows = log(out)
    assert len(rows) < 30
    chosen = int(json.loads((out / "results.json").read_text())["chosen"].split()[1])
    assert len(rows) == chosen + 2
    (out / "results.json").unlink()
    train(config, splits=splits, resume=True)
    assert len(log(out)) == len(rows)


def test_a_full_disk_is_told_in_one_line_and_the_run_goes_on_afterwards(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: it fails in the same call."""
    config = toy_config(out=str(tmp_path / "run"), epochs=2)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))  # config.json and model fit, the checkpoint not
        with pytest.raises(UserError, match="cannot be written.*--resume"):
            train(config, splits=tones())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not (tmp_path / "run" / "last.ckpt").exists()
    assert len(log(train(config, splits=tones(), resume=True))) == 2


def test_averaged_weights_are_the_mean_over_the_last_steps(tmp_path: Path) -> None:
    from kws_s5.training.checkpoint import read_checkpoint

    config = toy_config(out=str(tmp_path / "run"), epochs=2, average_from=0.8, save_steps=1)
    seen: dict[int, dict] = {}

    class Watched(Tones):
        def __getitem__(self, index: int) -> Example:  # before step s + 1 the checkpoint holds step s
            path = tmp_path / "run" / "last.ckpt"
            if path.exists():
                checkpoint = read_checkpoint(path)
                seen[checkpoint["progress"].step] = checkpoint["state_dict"]
            return super().__getitem__(index)

    splits = tones()
    splits.train = Watched(30, seed=1, moving=True)
    train(config, splits=splits)
    last = read_checkpoint(tmp_path / "run" / "last.ckpt")
    seen[8] = last["state_dict"]
    for name in ("model.head.decoder.weight", "model.layers.0.norm.var"):
        expected = (seen[7][name] + seen[8][name]) / 2
        torch.testing.assert_close(last["average"]["module." + name.removeprefix("model.")], expected)


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda s: setattr(s, "train", Tones(0, seed=0)), "no training examples"),
        (lambda s: setattr(s, "validation", Tones(0, seed=0)), "no validation examples"),
    ],
)
def test_data_that_cannot_train_is_refused(tmp_path: Path, change, word: str) -> None:
    splits = tones()
    change(splits)
    with pytest.raises(UserError, match=word):
        train(toy_config(out=str(tmp_path / "run")), splits=splits)


def test_a_model_without_test_clips_still_finishes(tmp_path: Path) -> None:
    splits = tones()
    splits.test = Tones(0, seed=0)
    results = json.loads((train(toy_config(out=str(tmp_path), epochs=1), splits=splits) / "results.json").read_text())
    assert results["test"] is None and results["validation"]["accuracy"] >= 0


class Levels(Tones):
    """A regression: the running mean of the input."""

    def __getitem__(self, index: int) -> Example:
        x = super().__getitem__(index).x
        y = x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None]
        return Example(x, y, dt=torch.ones(len(x)))


def test_regression_runs_through_the_same_door(tmp_path: Path) -> None:
    splits = tones()
    splits = replace(
        splits, train=Levels(30, seed=1), validation=Levels(12, seed=2), test=Levels(15, seed=3), labels=(), n_outputs=1
    )
    config = toy_config(out=str(tmp_path / "run"), epochs=8, average_from=0.5)
    model = replace(config.model, head=GaussianHead(hidden=8), front=LinearFront(), rate=0.0)
    out = train(replace(config, model=model), splits=splits)
    rows, results = log(out), json.loads((out / "results.json").read_text())
    assert rows[-1]["validation_mse"] < rows[0]["validation_mse"]
    assert results["test"]["mse"] == pytest.approx(results["validation"]["mse"], rel=1.0)
    assert results["confusion"] is None and not (out / "confusion.png").exists()


def test_matmul_precision_holds_while_the_run_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking(Tones):
        def __getitem__(self, index: int):
            seen.add(torch.get_float32_matmul_precision())
            return super().__getitem__(index)

    seen: set[str] = set()
    data = tones()
    data.train = Asking(9, seed=1, moving=True)
    monkeypatch.setattr(precision, "has_bfloat16_unit", lambda: True)
    train(toy_config(out=str(tmp_path / "run"), epochs=1, matmul_precision="medium"), splits=data)
    assert seen == {"medium"} and torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(UserError, match="matmul_precision"):
        toy_config(matmul_precision="low")
