"""Starting from another model: its body and the words both know are taken, and nothing that does not fit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import bank_model, log, tones, toy_config

from kws_s5.bundle import Bundle, load
from kws_s5.config import ClassHead, GRUMixer, LogMelFront, ModelConfig, RunConfig
from kws_s5.errors import UserError
from kws_s5.model import build_model
from kws_s5.recipes.kws import words
from kws_s5.training.prepare import load_weights_of
from kws_s5.training.run import train

BANK = replace(bank_model(), n_outputs=3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(toy_config(out=str(tmp_path_factory.mktemp("runs") / "run"), epochs=40), splits=tones())


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "bank.safetensors"
    Bundle(build_model(BANK), RunConfig(model=BANK), ("a", "b", "c")).save(path)
    return str(path)


def test_fine_tuning_takes_the_body_and_the_rows_of_known_words(finished: Path, tmp_path: Path) -> None:
    given = load(finished)
    config = replace(given.config.model, n_outputs=4)
    torch.manual_seed(3)
    model = build_model(config)
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    line = load_weights_of(model, ("new", "high", "other", "low"), str(finished))
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
    with pytest.raises(UserError, match="model.d_model is 8, here it is 10"):
        train(replace(config, model=replace(config.model, d_model=10)), splits=tones())
    with pytest.raises(UserError, match="model.n_layers is 1, here it is 0"):  # nothing is left behind silently
        train(replace(config, model=replace(config.model, n_layers=0)), splits=tones())


def ssm(**change: object) -> ModelConfig:
    return replace(BANK, mixer=replace(BANK.mixer, **change))


def front(**change: object) -> ModelConfig:
    return replace(BANK, front=replace(BANK.front, **change))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (ssm(eigenvalues="exp"), "model.mixer.eigenvalues is 'free', here it is 'exp'"),
        (ssm(discretization="bilinear"), "model.mixer.discretization is 'zoh'"),
        (ssm(conj_sym=False, ssm_size=4), "model.mixer.conj_sym is True"),
        (ssm(dt_max=0.2), "model.mixer.dt_max is 0.1, here it is 0.2"),
        (front(f_max=150.0), "model.front.f_max is 200"),
        (front(n_poles=3), "model.front.n_poles is 2"),
        (front(frame_rate=50.0), "model.front.frame_rate is 100.0"),
        (front(gain=2.4), "model.front.gain is 1.0"),
        (front(absent="mean"), "model.front.absent is 'floor'"),
        (replace(BANK, front=LogMelFront(n_mels=4, f_min=20, f_max=200)), "front.kind is 'BankFront'.*'LogMelFront'"),
        (replace(BANK, prenorm=False), "model.prenorm is True"),
        (replace(BANK, activation="half_glu2"), "model.activation is 'half_glu1'"),
        (replace(BANK, norm="layer"), "model.norm is 'batch'"),
        (replace(BANK, mixer=GRUMixer()), "model.mixer.kind is 'S5Mixer'.*'GRUMixer'"),
    ],
)
def test_a_model_that_computes_something_else_is_refused_by_the_option(
    bank: str, model: ModelConfig, says: str
) -> None:
    """Also where all shapes are the same, and where the option would have no effect."""
    with pytest.raises(UserError, match=says) as caught:
        load_weights_of(build_model(model), ("a", "b", "c"), bank)
    assert bank in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        replace(BANK, dropout=0.5, norm_momentum=0.8, n_outputs=3, rate=1000.0),
        front(learnable=False),
        replace(BANK, head=ClassHead(pooling="last")),
    ],
)
def test_what_belongs_to_the_training_or_its_data_may_differ(bank: str, model: ModelConfig) -> None:
    built = build_model(model)
    load_weights_of(built, ("a", "b", "c"), bank)
    weight = "layers.0.seq.B"
    assert torch.equal(built.state_dict()[weight], load(bank).model.state_dict()[weight])


def test_the_recipe_for_own_words_starts_from_the_shipped_model() -> None:
    run = words()
    model = build_model(replace(run.model, n_outputs=2, rate=16000.0))
    assert "1 of 2 words" in load_weights_of(model, ("stop", "hallo"), run.training.init)


def test_a_frame_decoder_begins_as_the_decoder_that_decided_before(bank: str) -> None:
    head = ClassHead(frame_logits=True, frame_decoder=True, window=0.1)
    model = build_model(replace(BANK, head=head, front=replace(BANK.front, floor=1e-9)))
    load_weights_of(model, ("a", "b", "c"), bank)
    theirs = load(bank).model.head.decoder
    assert torch.equal(model.head.frame_decoder.weight, theirs.weight)
    assert torch.equal(model.head.decoder.weight, theirs.weight)
    model = build_model(replace(BANK, head=head))
    fresh = model.head.frame_decoder.weight.clone()
    load_weights_of(model, ("c", "new", "a"), bank)
    assert torch.equal(model.head.frame_decoder.weight[0], theirs.weight[2])
    assert torch.equal(model.head.frame_decoder.weight[1], fresh[1])
