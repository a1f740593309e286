"""Two processes train like one with the doubled batch (batch norm included) and see every clip once."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from dataclasses import replace
sys.path.insert(0, {folder!r})
from toys import tones, toy_config
from kws_s5 import ops
from kws_s5.training.run import train

if __name__ == "__main__":
    out, devices, batch, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    strategy = "ddp" if devices > 1 else "auto"
    config = toy_config(out=out, devices=devices, strategy=strategy, batch_size=batch, epochs=epochs, save_steps=2)
    norm = next(a.removeprefix("--norm=") for a in sys.argv if a.startswith("--norm="))
    mode = "reference" if norm == "plain-batch" else "auto"
    config = replace(config, model=replace(config.model, dropout=0.0, norm=norm.removeprefix("plain-")))
    splits = tones()
    splits.test.n = 13  # not divisible by two
    init = out if "--init" in sys.argv else ""
    config = replace(config, training=replace(config.training, init=init))
    with ops.use(mode):
        train(config, splits=splits, resume="--resume" in sys.argv, overwrite=bool(init))
"""


def run(folder: Path, *arguments: str) -> None:
    script = folder / "script.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]


def log(out: Path) -> list[dict]:
    return [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader((out / "log.csv").open())]


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch", "plain-batch"])
def test_two_processes_give_the_curve_of_one_with_the_doubled_batch(tmp_path: Path, norm: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run(tmp_path, str(one), "1", "10", "3", f"--norm={norm}")
    run(tmp_path, str(two), "2", "5", "3", f"--norm={norm}")
    for a, b in zip(log(one), log(two), strict=True):
        assert a == pytest.approx(b, rel=2e-3, abs=1e-4)
    results = [json.loads((out / "results.json").read_text()) for out in (one, two)]
    assert all(sum(map(sum, r["confusion"])) == 13 for r in results)
    assert results[0]["test"] == pytest.approx(results[1]["test"], rel=2e-3)


@pytest.mark.slow
def test_two_processes_start_from_the_model_that_they_replace(tmp_path: Path) -> None:
    """The second process comes when the first has moved that model away; both learn from its weights."""
    one, two = tmp_path / "one", tmp_path / "two"
    run(tmp_path, str(one), "1", "10", "3", "--norm=layer")
    shutil.copytree(one, two)
    run(tmp_path, str(one), "1", "10", "1", "--norm=layer", "--init")
    run(tmp_path, str(two), "2", "5", "1", "--norm=layer", "--init")
    assert log(one)[0] == pytest.approx(log(two)[0], rel=2e-3, abs=1e-4)
