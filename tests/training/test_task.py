"""Training steps: gradients are clipped in every precision, and a training that diverges says so."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from toys import Tones, bank_model, log, tones, toy_config

from kws_s5.config import AugmentConfig
from kws_s5.data.batch import Example
from kws_s5.errors import UserError
from kws_s5.training import precision as precision_file
from kws_s5.training.run import train


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


class Broken(Tones):
    """Sound that no data reader would let through."""

    def __getitem__(self, index: int) -> Example:
        example = super().__getitem__(index)
        return replace(example, x=example.x * float("nan"))


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_learns_what_float32_does_with_clipped_gradients(
    tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_file, "_on_cpu", lambda accelerator: False)  # as on a GPU: what was asked for

    def losses(precision: str) -> list[float]:
        config = toy_config(out=str(tmp_path / precision), epochs=4, precision=precision)
        optim = replace(config.optim, clip_norm=0.5)
        model = replace(bank_model(), dropout=0.0)
        augment = AugmentConfig(shift=0.01, gain=0.5, noise=0.5, time_mask=0.02)
        return [
            row["train_loss"]
            for row in log(train(replace(config, optim=optim, model=model, augment=augment), splits=tones()))
        ]

    assert losses(precision) == pytest.approx(losses("32-true"), rel=0.05)


@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
def test_weights_and_sound_in_half_precision_are_refused(precision: str) -> None:
    with pytest.raises(UserError, match=f"training.precision = '{precision}'.*bf16-mixed"):
        toy_config(precision=precision)


@pytest.mark.parametrize("fails_from", [1, 2])
def test_a_validation_without_numbers_is_a_training_that_diverged(tmp_path: Path, fails_from: int) -> None:
    class Late(Broken):
        def __getitem__(self, index: int) -> Example:
            epoch = 1 + (len(log(out)) if (out / "log.csv").exists() else 0)
            return super().__getitem__(index) if epoch >= fails_from else Tones.__getitem__(self, index)

    out, splits = tmp_path / "run", tones()
    splits.validation = Late(12, seed=2)
    with pytest.raises(UserError, match=f"diverged in epoch {fails_from}: the validation loss is nan.*--optim.lr"):
        train(toy_config(out=str(out)), splits=splits)
    assert all(math.isfinite(row["validation_loss"]) for row in (log(out) if fails_from > 1 else []))
