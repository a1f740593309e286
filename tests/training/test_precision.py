"""A precision that brings nothing on this machine becomes float32, and the run says so once."""

from pathlib import Path

import pytest
import torch
from toys import log, tones, toy_config

from kws_s5.training import precision
from kws_s5.training.precision import usable
from kws_s5.training.run import train


def asked(**options: str) -> tuple[str, str]:
    found = usable(toy_config(**options).training)
    return found.precision, found.matmul_precision


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> bool:
    monkeypatch.setattr(precision, "has_bfloat16_unit", lambda: request.param)
    return request.param


@pytest.mark.parametrize("unit", [True, False], indirect=True)
def test_bfloat16_is_used_where_the_processor_has_a_unit_for_it(unit: bool) -> None:
    assert asked(precision="bf16-mixed") == ("bf16-mixed" if unit else "32-true", "highest")
    assert asked(matmul_precision="medium") == ("32-true", "medium" if unit else "highest")


@pytest.mark.parametrize("unit", [True, False], indirect=True)
def test_what_no_cpu_gains_from_becomes_float32(unit: bool) -> None:
    assert asked(precision="16-mixed", matmul_precision="high") == ("32-true", "highest")
    assert asked(precision="64-true") == ("64-true", "highest")


@pytest.mark.parametrize("unit", [False], indirect=True)
def test_gpus_get_what_was_asked_for(unit: bool) -> None:
    config = toy_config(accelerator="gpu", precision="bf16-mixed", matmul_precision="high")
    assert usable(config.training) == ("bf16-mixed", "high", ())


@pytest.mark.parametrize("unit", [False], indirect=True)
def test_a_run_says_it_once_and_trains_in_float32(
    unit: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(toy_config(out=str(tmp_path / "half"), epochs=2, precision="bf16-mixed"), splits=tones())
    said = [line for line in capsys.readouterr().out.splitlines() if "training.precision" in line]
    assert said == [
        "note: training.precision = 'bf16-mixed' brings nothing on this processor: training runs with "
        "'32-true' (float32)"
    ]
    train(toy_config(out=str(tmp_path / "full"), epochs=2), splits=tones())
    assert "training.precision" not in capsys.readouterr().out
    half, full = ([row["train_loss"] for row in log(tmp_path / name)] for name in ("half", "full"))
    assert half == full and torch.get_float32_matmul_precision() == "highest"
