"""Every number of a run is finite, whatever the field; the error names it."""

import dataclasses
import math
from dataclasses import replace

import pytest

from kws_s5.config import (
    AugmentConfig,
    BankFront,
    KeywordData,
    LogMelFront,
    ModelConfig,
    OptimConfig,
    RunConfig,
    SeriesData,
    TrainingConfig,
)
from kws_s5.config.checks import finite
from kws_s5.errors import UserError
from kws_s5.recipes.registry import RECIPES


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_float_of_a_run_may_be_nan_or_infinite(value: float) -> None:
    """Set past the fields' own checks, one at a time."""
    parts = {
        "model": ModelConfig(front=BankFront()),
        "data": KeywordData(),
        "augment": AugmentConfig(),
        "optim": OptimConfig(),
        "training": TrainingConfig(),
    }
    model = parts["model"]
    parts |= {"model.front": model.front, "model.mixer": model.mixer, "model.head": model.head}
    tried = 0
    for name, part in parts.items():
        for field in dataclasses.fields(part):
            old = getattr(part, field.name)
            if type(old) is float or isinstance(old, tuple) and old and type(old[0]) is float:
                new = value if type(old) is float else (old[0], value)
                object.__setattr__(part, field.name, new)
                with pytest.raises(UserError, match=f"^{name}.{field.name} = .*finite") as caught:
                    RunConfig(**{key: found for key, found in parts.items() if "." not in key})
                assert "\n" not in str(caught.value)
                object.__setattr__(part, field.name, old)
                tried += 1
    RunConfig(**{key: found for key, found in parts.items() if "." not in key})
    assert tried > 40


def test_options_that_had_no_check_of_their_own_are_checked() -> None:
    for model in (
        ModelConfig(front=BankFront(gain=math.nan)),
        ModelConfig(front=LogMelFront(floor=math.inf)),
        ModelConfig(rate=math.nan),
    ):
        with pytest.raises(UserError, match="^model"):
            RunConfig(model=model)
    with pytest.raises(UserError, match="optim.lr = inf"):
        replace(RunConfig(), optim=OptimConfig(lr=math.inf))
    with pytest.raises(UserError, match="data.scaling.feature_mean = nan"):
        RunConfig(data=SeriesData(scaling=replace(SeriesData().scaling, feature_mean=(1.0, math.nan))))


def test_all_recipes_are_finite() -> None:
    for recipe in RECIPES.values():
        finite(recipe())
