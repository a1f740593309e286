"""The GPU benchmark runs from end to end without a GPU, and never lets a rehearsal pass for a measurement."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks.gpu", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_without_a_device_it_says_so_and_writes_nothing(tmp_path):
    result = run("--out", tmp_path / "gpu")
    assert result.returncode == 2 and "nothing was measured" in result.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_rehearsal_fills_every_table_and_calls_itself_one(tmp_path):
    result = run("--rehearse", "--out", tmp_path / "gpu")
    assert result.returncode == 0, result.stderr[-3000:]
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert "rehearsal" in report["machine"]["device"] and "times mean nothing" in (tmp_path / "gpu.md").read_text()
    for table in ("scan", "small", "layer", "step"):
        assert report[table] and not any(row.get("remark") for row in report[table])
    assert max(report["errors"].values()) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_results_are_right():
    from benchmarks.gpu import errors

    assert max(errors("cuda", (1, 65, 16_000)).values()) < 1e-4
