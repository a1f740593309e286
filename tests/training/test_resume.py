"""A run that dies anywhere and is resumed ends with the same weights, bit for bit, as one that never stopped."""

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import Tones, breaking, fail, interrupt, tones, toy_config

from kws_s5.bundle import load
from kws_s5.errors import UserError
from kws_s5.training.checkpoint import read_checkpoint
from kws_s5.training.run import train

SETTINGS = {"epochs": 3, "save_steps": 1, "average_from": 0.5, "balanced": True}


def final(out: Path) -> tuple[dict, dict, list]:
    rows = list(csv.DictReader((out / "log.csv").open()))
    for row in rows:
        row.pop("seconds")
    checkpoint = read_checkpoint(out / "last.ckpt")
    weights = {**checkpoint["state_dict"], **checkpoint["average"]}
    return weights, load(out / "model.safetensors").model.state_dict(), rows


def assert_same(first: Path, second: Path) -> None:
    for a, b in zip(final(first), final(second), strict=True):
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            assert all(torch.equal(a[name], b[name]) for name in a)
        else:
            assert a == b


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(toy_config(out=str(tmp_path_factory.mktemp("runs") / "whole"), **SETTINGS), splits=tones())


def test_the_same_seed_gives_the_same_run(uninterrupted: Path, tmp_path: Path) -> None:
    assert_same(uninterrupted, train(toy_config(out=str(tmp_path / "again"), **SETTINGS), splits=tones()))


@pytest.mark.parametrize("clip", [1, 8, 20, 28, 29, 36, 60, 84])
def test_a_crash_at_any_step_changes_nothing(uninterrupted: Path, tmp_path: Path, clip: int) -> None:
    config = toy_config(out=str(tmp_path / "run"), **SETTINGS)
    with pytest.raises(RuntimeError, match="power cut"):
        train(config, splits=breaking(clip, fail))
    assert_same(uninterrupted, train(config, splits=tones(), resume=True))


@pytest.mark.parametrize("save_steps", [0, 3])
@pytest.mark.parametrize("clip", [10, 40])
def test_sparse_checkpoints_resume_exactly_too(uninterrupted: Path, tmp_path: Path, clip: int, save_steps: int) -> None:
    config = toy_config(out=str(tmp_path / "run"), **{**SETTINGS, "save_steps": save_steps})
    with pytest.raises(RuntimeError, match="power cut"):
        train(config, splits=breaking(clip, fail))
    assert_same(uninterrupted, train(config, splits=tones(), resume=True))


@pytest.mark.parametrize("clip", [10, 28, 40])
def test_ctrl_c_saves_the_very_step_and_leaves_a_model(uninterrupted: Path, tmp_path: Path, clip: int) -> None:
    config = toy_config(out=str(tmp_path / "run"), **{**SETTINGS, "save_steps": 0})
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(config, splits=breaking(clip, interrupt))
    assert signal.getsignal(signal.SIGINT) is before
    assert read_checkpoint(tmp_path / "run" / "last.ckpt")["progress"].step == -(-clip // 7)
    assert load(tmp_path / "run").labels == ("low", "middle", "high")
    assert_same(uninterrupted, train(config, splits=tones(), resume=True))


def test_two_crashes_in_one_epoch_change_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path / "run"), **SETTINGS)
    for clip in (10, 8, 15):
        with pytest.raises(RuntimeError, match="power cut"):
            train(config, splits=breaking(clip, fail), resume=True)
    assert_same(uninterrupted, train(config, splits=tones(), resume=True))


def test_a_finished_run_stays_as_it_is_when_resumed(uninterrupted: Path) -> None:
    before = {path.name: path.read_bytes() for path in uninterrupted.iterdir() if path.is_file()}
    train(toy_config(out=str(uninterrupted), **SETTINGS), splits=tones(), resume=True)
    assert before == {path.name: path.read_bytes() for path in uninterrupted.iterdir() if path.is_file()}


def test_a_run_killed_before_its_results_only_writes_those(uninterrupted: Path, tmp_path: Path) -> None:
    config = toy_config(out=str(tmp_path / "run"), **SETTINGS)
    out = train(config, splits=tones())
    (out / "results.json").unlink()
    assert_same(uninterrupted, train(config, splits=tones(), resume=True))
    assert (out / "results.json").exists()


def stopped(out: Path, **settings) -> Path:
    with pytest.raises(RuntimeError, match="power cut"):
        train(toy_config(out=str(out), **{**SETTINGS, **settings}), splits=breaking(10, fail))
    return out


def test_resuming_with_other_options_is_refused_by_name(tmp_path: Path) -> None:
    out = stopped(tmp_path / "run")
    config = toy_config(out=str(out), **SETTINGS)
    with pytest.raises(UserError, match="optim.lr was 0.02, now 0.5"):
        train(replace(config, optim=replace(config.optim, lr=0.5)), splits=tones(), resume=True)
    train(replace(config, training=replace(config.training, save_minutes=1.0)), splits=tones(), resume=True)


def test_a_run_from_before_an_option_existed_goes_on_with_its_default(uninterrupted: Path, tmp_path: Path) -> None:
    out = stopped(tmp_path / "run")
    options = json.loads((out / "config.json").read_text())
    del options["training"]["matmul_precision"]
    (out / "config.json").write_text(json.dumps(options))
    config = toy_config(out=str(out), **SETTINGS)
    with pytest.raises(UserError, match="training.matmul_precision was 'highest', now 'high'"):
        train(replace(config, training=replace(config.training, matmul_precision="high")), splits=tones(), resume=True)
    assert_same(uninterrupted, train(config, splits=tones(), resume=True))


def test_a_finished_run_with_other_options_is_told_so(uninterrupted: Path) -> None:
    config = toy_config(out=str(uninterrupted), **(SETTINGS | {"epochs": 99}))
    with pytest.raises(UserError, match="finished already, with other options: training.epochs"):
        train(config, splits=tones(), resume=True)


def test_several_machines_without_a_launcher_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UserError, match="torchrun or srun"):
        train(toy_config(out=str(tmp_path / "run"), nodes=2), splits=tones())


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    out, fewer = stopped(tmp_path / "run"), tones()
    fewer.train = Tones(29, seed=1, moving=True)
    with pytest.raises(UserError, match="30 training examples"):
        train(toy_config(out=str(out), **SETTINGS), splits=fewer, resume=True)


@pytest.mark.parametrize("damage", ["truncate", "garble", "empty", "pickle"])
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    out = stopped(tmp_path / "run")
    path, whole = out / "last.ckpt", (out / "last.ckpt").read_bytes()
    if damage == "pickle":
        torch.save({"progress": Path("x")}, path)
    else:
        path.write_bytes({"truncate": whole[: len(whole) // 2], "garble": b"x" * 1000, "empty": b""}[damage])
    with pytest.raises(UserError, match="not a usable checkpoint") as caught:
        train(toy_config(out=str(out), **SETTINGS), splits=tones(), resume=True)
    assert "\n" not in str(caught.value)


SCRIPT = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from toys import tones, toy_config
from kws_s5.training.run import train

def start(out):
    child = os.fork()
    if child == 0:
        status, settings = 1, {"epochs": max(8, int(n)), "save_steps": 3, "average_from": 0.5, "balanced": True}
        try:
            train(toy_config(out=out, **settings), splits=tones(), resume=True)
            status = 0
        finally:
            os._exit(status)
    return child

def version(path):
    return os.stat(path).st_ino if os.path.exists(path) else 0

whole, broken, n = sys.argv[2:5]
assert os.waitpid(start(whole), 0)[1] == 0
moments, killed = random.Random(0), 0
for _ in range(int(n)):
    child, last, saves = start(broken), version(broken + "/last.ckpt"), moments.randrange(1, 4)
    while saves and not os.waitpid(child, os.WNOHANG)[0]:
        now = version(broken + "/last.ckpt")
        saves, last = saves - (now != last), now
        time.sleep(0.001)
    if saves:
        break
    time.sleep(moments.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    killed += os.waitpid(child, 0)[1] == signal.SIGKILL
assert os.waitpid(start(broken), 0)[1] == 0
print("killed", killed)
"""


@pytest.mark.slow
def test_killed_processes_resume_to_the_same_weights(tmp_path: Path) -> None:
    """SIGKILL at random moments of real processes (forked from one that has done the slow imports).

    KWS_S5_KILLS=60 in the environment makes it a long one (docs/reliability.md).
    """
    n = os.environ.get("KWS_S5_KILLS", "7")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(whole), str(broken), n]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300 + 10 * int(n))
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert int(done.stdout.split("killed ")[-1]) >= 3
    assert_same(whole, broken)
