"""A run from data to results: it learns, writes what it promises, refuses what it must, fine-tunes."""

import csv
import json
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import LABELS, Tones, tones, toy_config

from kws_s5.bundle import load
from kws_s5.config import GaussianHead, KeywordData, LinearFront, RunConfig, from_dict
from kws_s5.data.batch import Example, collate
from kws_s5.errors import UserError
from kws_s5.lock import locked
from kws_s5.training.run import train


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(out=str(tmp_path_factory.mktemp("runs") / "run"), epochs=40, label_smoothing=0.05)
    return train(config, splits=tones(), command="kws-train toy")


def log(out: Path) -> list[dict]:
    return [{k: float(v) for k, v in row.items()} for row in csv.DictReader((out / "log.csv").open())]


def test_a_toy_model_learns(finished: Path) -> None:
    rows = log(finished)
    assert rows[-1]["train_loss"] < 0.5 * rows[0]["train_loss"]
    assert json.loads((finished / "results.json").read_text())["test"]["accuracy"] > 0.8


def test_the_folder_holds_what_a_run_promises(finished: Path) -> None:
    names = {path.name for path in finished.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert names == {"config.json", "log.csv", "last.ckpt", "model.safetensors", "results.json", "confusion.png",
                     "curves.png"}
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


def test_gradients_are_clipped(tmp_path: Path) -> None:
    """With a tiny limit Adam still moves, so compare against a run whose limit is never reached."""
    def first_loss_curve(limit: float) -> list[float]:
        config = toy_config(out=str(tmp_path / f"run{limit}"))
        config = replace(config, optim=replace(config.optim, clip_norm=limit))
        return [row["train_loss"] for row in log(train(config, splits=tones()))]

    assert first_loss_curve(0.0) == first_loss_curve(1e6) != first_loss_curve(1e-7)


def test_diverged_training_says_so(tmp_path: Path) -> None:
    splits = tones()
    splits.train = Broken(30, seed=1)
    with pytest.raises(UserError, match="diverged in epoch 1.*--optim.lr"):
        train(toy_config(out=str(tmp_path / "run")), splits=splits)


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


class Broken(Tones):
    """Sound that no data reader would let through."""

    def __getitem__(self, index: int) -> Example:
        example = super().__getitem__(index)
        return replace(example, x=example.x * float("nan"))


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


def test_fine_tuning_takes_the_body_and_the_rows_of_known_words(finished: Path, tmp_path: Path) -> None:
    from kws_s5.model import build_model
    from kws_s5.training.prepare import take_over

    given = load(finished)
    config = replace(given.config.model, n_outputs=4)
    torch.manual_seed(3)
    model = build_model(config)
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    line = take_over(model, ("new", "high", "other", "low"), str(finished))
    assert "2 of 4 words" in line
    theirs, ours = given.model.state_dict(), model.state_dict()
    for name in ours:
        if not name.startswith("head."):
            assert torch.equal(ours[name], theirs[name])
    weight = "head.decoder.weight"
    assert torch.equal(ours[weight][1], theirs[weight][2]) and torch.equal(ours[weight][3], theirs[weight][0])
    assert torch.equal(ours[weight][[0, 2]], fresh[weight][[0, 2]])


def test_fine_tuning_starts_better_and_runs_by_one_option(finished: Path, tmp_path: Path) -> None:
    tuned = train(toy_config(out=str(tmp_path / "tuned"), epochs=1, init=str(finished)), splits=tones())
    fresh = train(toy_config(out=str(tmp_path / "fresh"), epochs=1), splits=tones())
    assert log(tuned)[0]["train_loss"] < 0.8 * log(fresh)[0]["train_loss"]


def test_another_architecture_cannot_be_taken_over(finished: Path, tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path / "run"), init=str(finished))
    with pytest.raises(UserError, match="does not fit.*d_model 8"):
        train(replace(config, model=replace(config.model, d_model=10)), splits=tones())
    with pytest.raises(UserError, match=r"layers\.0\..* does not fit.*n_layers 1"):  # nothing is left behind silently
        fewer = replace(config.model, n_layers=load(finished).config.model.n_layers - 1)
        train(replace(config, model=fewer), splits=tones())


@pytest.mark.parametrize("change, word", [
    (lambda s: setattr(s, "train", Tones(0, seed=0)), "no training examples"),
    (lambda s: setattr(s, "validation", Tones(0, seed=0)), "no validation examples"),
])
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
    splits = replace(splits, train=Levels(30, seed=1), validation=Levels(12, seed=2), test=Levels(15, seed=3),
                     labels=(), n_outputs=1)
    config = toy_config(out=str(tmp_path / "run"), epochs=8, average_from=0.5)
    model = replace(config.model, head=GaussianHead(hidden=8), front=LinearFront(), rate=0.0)
    out = train(replace(config, model=model), splits=splits)
    rows, results = log(out), json.loads((out / "results.json").read_text())
    assert rows[-1]["validation_mse"] < rows[0]["validation_mse"]
    assert results["test"]["mse"] == pytest.approx(results["validation"]["mse"], rel=1.0)
    assert results["confusion"] is None and not (out / "confusion.png").exists()


def test_matmul_precision_holds_while_the_run_lasts(tmp_path: Path) -> None:
    class Asking(Tones):
        def __getitem__(self, index: int):
            seen.add(torch.get_float32_matmul_precision())
            return super().__getitem__(index)

    seen: set[str] = set()
    data = tones()
    data.train = Asking(9, seed=1, moving=True)
    train(toy_config(out=str(tmp_path / "run"), epochs=1, matmul_precision="high"), splits=data)
    assert seen == {"high"} and torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(UserError, match="matmul_precision"):
        toy_config(matmul_precision="low")
