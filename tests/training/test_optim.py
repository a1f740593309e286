"""Optimiser groups and schedules against the published tables and a step-by-step retelling of the official loop."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch

from kws_s5.config import MIXERS, BankFront, ModelConfig, OptimConfig, S5Mixer
from kws_s5.config.training import Groups
from kws_s5.model import build_model
from kws_s5.training.optim import LAYOUTS, build_optimizer, learning_rate, parameter_groups, parameter_roles

SSM, DECAY = {"lr": 0.001, "weight_decay": 0.0}, {"lr": 0.001, "weight_decay": 0.05}
REGULAR = {"lr": 0.004, "weight_decay": 0.05}


def model_of(*, bidirectional: bool) -> torch.nn.Module:
    ssm = S5Mixer(ssm_size=8, blocks=2, bidirectional=bidirectional)
    return build_model(ModelConfig(d_model=4, n_layers=2, mixer=ssm, n_outputs=3))


MODELS = {"bidirectional": lambda: model_of(bidirectional=True)} | {
    name: lambda mixer=mixer: build_model(
        ModelConfig(
            d_model=4, n_layers=2, mixer=mixer(), n_outputs=3, rate=8000.0, front=BankFront(n_modes=3, f_max=3000)
        )
    )
    for name, mixer in MIXERS.items()
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("layout", get_args(Groups))
def test_every_parameter_is_in_exactly_one_group(layout: str, kind: str) -> None:
    model = MODELS[kind]()
    groups = parameter_groups(model, OptimConfig(groups=layout))
    named = [name for group in groups for name in group.parameters]
    assert sorted(named) == sorted(name for name, _ in model.named_parameters())
    optimizer = build_optimizer(model, OptimConfig(groups=layout))
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(map(id, model.parameters()))


# what is a pole, a step, an input or an output matrix in each mixer, by hand
ROLES = {
    "s5": {"Lambda_re": "pole", "Lambda_im": "pole", "log_step": "step", "B": "input", "C": "output", "D": "output"},
    "s4d": {"log_A_real": "pole", "A_imag": "pole", "log_step": "step", "C": "output", "D": "output"},
    "gru": {},
    "conv": {},
}


@pytest.mark.parametrize("kind", MIXERS)
def test_modules_declare_the_roles_of_their_parameters(kind: str) -> None:
    found = parameter_roles(MODELS[kind]())
    assert {name: role for name, role in found.items() if name.startswith("front.")} == {
        "front.log_decay": "pole",
        "front.log_frequency": "pole",
    }
    layers = {name: role for name, role in found.items() if name.startswith("layers.")}
    assert layers == {f"layers.{i}.seq.{name}": role for i in range(2) for name, role in ROLES[kind].items()}


def test_a_role_for_a_parameter_that_is_not_there_is_a_slip_told_at_once() -> None:
    model = model_of(bidirectional=True)  # it has C1 and C2
    model.layers[0].seq.parameter_roles = lambda: {"C": "output"}
    with pytest.raises(AssertionError, match="'C'"):
        parameter_groups(model, OptimConfig())


# the published table (official code of the S5 paper): leaf -> settings; everything else is regular
PUBLISHED = {
    "standard": {"B": SSM, "Lambda_re": SSM, "Lambda_im": SSM, "log_step": SSM},
    "BandCdecay": {"B": DECAY, "Lambda_re": SSM, "Lambda_im": SSM, "log_step": SSM},
    "BfastandCdecay": {"Lambda_re": SSM, "Lambda_im": SSM, "log_step": SSM},
    "noBCdecay": dict.fromkeys(("B", "C", "C1", "C2", "D", "Lambda_re", "Lambda_im", "log_step"), SSM),
}


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layout", PUBLISHED)
def test_groups_are_the_published_ones(layout: str, bidirectional: bool) -> None:
    model = model_of(bidirectional=bidirectional)
    settings = {
        name: {"lr": g.lr, "weight_decay": g.weight_decay}
        for g in parameter_groups(model, OptimConfig(groups=layout))
        for name in g.parameters
    }
    for name, found in settings.items():
        assert found == PUBLISHED[layout].get(name.split(".")[-1], REGULAR), name
    assert settings["layers.0.norm.scale"] == settings["layers.0.norm.bias"] == REGULAR


def test_dt_global_moves_only_log_step() -> None:
    model = model_of(bidirectional=False)
    before = {n: g.name for g in parameter_groups(model, OptimConfig()) for n in g.parameters}
    after = {n: g.name for g in parameter_groups(model, OptimConfig(dt_global=True)) for n in g.parameters}
    moved = {name for name in before if before[name] != after[name]}
    assert moved == {"layers.0.seq.log_step", "layers.1.seq.log_step"}
    assert {after[name] for name in moved} == {"regular"}


def test_frozen_parameters_are_in_no_group() -> None:
    model = model_of(bidirectional=False)
    model.layers[0].seq.log_step.requires_grad_(False)
    named = {n for g in parameter_groups(model, OptimConfig()) for n in g.parameters}
    assert "layers.0.seq.log_step" not in named and "layers.1.seq.log_step" in named


def test_layouts_are_those_of_the_config() -> None:
    assert set(LAYOUTS) == set(get_args(Groups))


def rates(config: OptimConfig, *, n_steps: int, warmup: int, peak: float = 1.0) -> list[float]:
    return [learning_rate(peak, config, step=k, n_steps=n_steps, warmup=warmup) for k in range(n_steps)]


def test_cosine_rises_to_the_peak_and_reaches_lr_min_at_the_last_step() -> None:
    found = rates(OptimConfig(lr_min=0.01), n_steps=100, warmup=10)
    assert found[:10] == pytest.approx([(k + 1) / 10 for k in range(10)])
    assert found[-1] == pytest.approx(0.01, abs=1e-12) and min(found[10:-1]) > 0.01
    assert all(a > b for a, b in zip(found[9:], found[10:], strict=False))
    assert found[54] == pytest.approx(0.01 + 0.99 * 0.5, abs=1e-12)  # half way down


def test_constant_warms_up_then_stays() -> None:
    assert rates(OptimConfig(schedule="constant"), n_steps=5, warmup=2) == [0.5, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("epochs", "warmup_epochs", "per_epoch"), [(5, 1, 7), (4, 0, 3), (6, 2, 5)])
def test_official_schedule_equals_the_published_loop(epochs: int, warmup_epochs: int, per_epoch: int) -> None:
    """The loop retold: the optimiser steps, then the rate for the next step is set; the count never resets."""
    lr, lr_min, expected, step = 1.0, 0.1, [], 0
    current = lr
    for epoch in range(epochs):
        for _ in range(per_epoch):
            expected.append(current)
            if epoch < warmup_epochs:
                current = lr * (step + 1) / (per_epoch * warmup_epochs)
            else:
                end = per_epoch * epochs - per_epoch * warmup_epochs
                current = lr_min + (lr - lr_min) * 0.5 * (1 + math.cos(math.pi * min(step, end) / end))
            step += 1
    config = OptimConfig(schedule="official", lr_min=lr_min)
    found = rates(config, n_steps=epochs * per_epoch, warmup=warmup_epochs * per_epoch)
    assert found == pytest.approx(expected, abs=1e-12)
    assert found[0] == lr  # the very first step runs at the full rate
    if warmup_epochs:
        assert found[-per_epoch * warmup_epochs + 1 :] == pytest.approx(
            [lr_min] * (per_epoch * warmup_epochs - 1), abs=1e-12
        )


def test_no_schedule_ever_goes_below_zero_or_above_the_peak() -> None:
    for schedule in ("cosine", "official", "constant"):
        for n_steps, warmup in [(1, 0), (1, 1), (3, 5), (10, 10), (7, 2)]:
            found = rates(OptimConfig(schedule=schedule), n_steps=n_steps, warmup=warmup)
            assert all(0.0 <= rate <= 1.0 for rate in found), (schedule, n_steps, warmup)


def test_adamw_step_is_the_published_update() -> None:
    """p -= lr * (adam + decay * p), from the formulas in float64."""
    torch.manual_seed(0)
    model = model_of(bidirectional=False).double()
    optimizer = build_optimizer(model, replace(OptimConfig(), lr=0.01, weight_decay=0.1))
    before = model.head.decoder.weight.detach().clone()
    model.head.decoder.weight.grad = gradient = torch.randn_like(before)
    optimizer.step()
    adam = gradient / (gradient.square().sqrt() + 1e-8)  # bias-corrected moments after one step
    expected = before - 0.01 * (adam + 0.1 * before)
    torch.testing.assert_close(model.head.decoder.weight.detach(), expected, rtol=0, atol=1e-12)
