"""Every recipe builds, the command line is its config, and a folder of recordings trains end to end."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kws_s5.audio.files import save_wav
from kws_s5.bundle import load
from kws_s5.config import LraData, RunConfig, S4DMixer, SeriesData, TokenFront, from_dict, to_dict
from kws_s5.model import build_model
from kws_s5.recipes.registry import RECIPES, help_line
from kws_s5.recipes.train import main, overview, parse
from kws_s5.training.optim import parameter_groups
from kws_s5.training.prepare import switch_masks

PUBLISHED_PARAMETERS = {"kws35": 283_523}  # S5 paper, table of model sizes (280K), exactly


def completed(config: RunConfig):
    """The model config with what data would say."""
    front = config.model.front
    if isinstance(front, TokenFront) and not front.vocab_size:
        front = replace(front, vocab_size=20)
    if getattr(front, "n_inputs", 1) == 0:
        front = replace(front, n_inputs=1)
    outputs = config.model.n_outputs or {"kws35": 35, "kws12": 12}.get(config.name, 10)
    rate = config.model.rate or getattr(config.data, "rate", 0.0)
    return replace(config.model, front=front, n_outputs=outputs, rate=rate)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_and_says_what_it_is(name: str) -> None:
    config = RECIPES[name]()
    assert config.name == name
    assert 20 <= len(help_line(RECIPES[name])) <= 120
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config
    model = build_model(completed(config))
    switch_masks(model, config.augment)
    groups = parameter_groups(model, config.optim)
    assert sum(len(g.parameters) for g in groups) == len(list(model.parameters()))
    if name in PUBLISHED_PARAMETERS:
        assert sum(p.numel() for p in model.parameters()) == PUBLISHED_PARAMETERS[name]


def test_a_learnable_bank_trains_its_poles_like_an_ssm() -> None:
    config = RECIPES["kws12"]()
    front = replace(config.model.front, learnable=True)
    model = build_model(completed(replace(config, model=replace(config.model, front=front))))
    ssm = {name for group in parameter_groups(model, config.optim) if group.name == "ssm" for name in group.parameters}
    assert {"front.log_frequency", "front.log_decay"} <= ssm


def test_kws12_stays_within_300_k_parameters() -> None:
    model = build_model(completed(RECIPES["kws12"]()))
    assert sum(p.numel() for p in model.parameters()) <= 300_000


def test_kws35_is_the_papers_configuration() -> None:
    run = RECIPES["kws35"]()
    model, ssm, optim = run.model, run.model.mixer, run.optim
    assert (model.d_model, model.n_layers, ssm.ssm_size, ssm.blocks) == (96, 6, 128, 16)
    assert (ssm.bidirectional, ssm.C_init, ssm.dt_min, ssm.dt_max) == (True, "lecun_normal", 0.001, 0.1)
    assert (model.activation, model.norm_momentum, model.dropout, model.prenorm) == ("half_glu1", 0.95, 0.1, True)
    assert (optim.lr, optim.ssm_lr, optim.weight_decay, optim.groups) == (0.008, 0.002, 0.04, "noBCdecay")
    assert (run.training.epochs, run.training.batch_size, optim.warmup_epochs) == (40, 16, 1.0)


def test_options_change_exactly_what_they_name() -> None:
    run = parse(
        "kws12",
        [
            "--optim.lr",
            "0.1",
            "--data.words",
            "a",
            "b",
            "--resume",
            "--init",
            "runs/x",
            "--model.ssm.ssm-size",
            "32",
            "--training.balanced",
        ],
    )  # ssm: as before mixers
    expected = RECIPES["kws12"]()
    expected = replace(
        expected,
        optim=replace(expected.optim, lr=0.1),
        data=replace(expected.data, words=("a", "b")),
        training=replace(expected.training, init="runs/x", balanced=True),
        model=replace(expected.model, mixer=replace(expected.model.mixer, ssm_size=32)),
    )
    assert run.config == expected and run.resume and not run.overwrite
    assert parse("kws12", ["--init=y"]).config.training.init == "y"


@pytest.mark.parametrize("options", [["--model.mixer", "s4d"], ["--model.mixer=s4d", "--model.mixer.n-states", "16"]])
def test_one_option_takes_another_mixer(options: list[str]) -> None:
    """Its own options have their defaults; what both mixers have keeps the recipe's value."""
    recipe, run = RECIPES["kws12"](), parse("kws12", options).config
    n_states = 16 if len(options) == 3 else 64
    assert run == replace(recipe, model=replace(recipe.model, mixer=S4DMixer(n_states, dt_min=0.01, dt_max=0.5)))
    assert parse("kws12", ["--model.mixer", "s5"]).config == recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_without_options_is_the_recipe(name: str) -> None:
    assert parse(name, []).config == RECIPES[name]()


def test_help_lists_all_recipes_one_line_each(capsys: pytest.CaptureFixture) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, recipe in RECIPES.items():
        assert sum(line.split()[:1] == [name] and help_line(recipe) in line for line in lines) == 1
    assert main([]) == 2 and overview() in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, words",
    [
        (["kws53"], "did you mean kws35"),
        (["bake"], "there are kws35"),
        (["kws12", "--resume", "--overwrite"], "exclude"),
        (["kws12", "--data.root", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_a_mistake_is_one_clear_line_and_status_2(argv, words, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error


@pytest.mark.parametrize(
    "options, words",
    [
        (["--optim.lr", "-1"], "must be positive"),
        (["--optim.lrr", "1"], "optim.lr"),
        (["--model.mixer.blocks", "5"], "divisor"),
        (["--model.mixer", "s6"], "one of s5, s4d, gru, conv"),
        (["--model.mixer"], "one of s5"),
        (["--model.mixer", "gru", "--model.mixer.ssm-size", "8"], "ssm-size"),
    ],
)
def test_a_wrong_option_is_explained_with_status_2(options, words, capsys) -> None:
    assert main(["kws12", *options]) == 2
    streams = capsys.readouterr()
    assert words in streams.out + streams.err and "Traceback" not in streams.out + streams.err


def test_each_recipe_explains_its_options(capsys: pytest.CaptureFixture) -> None:
    assert main(["kws12", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--data.root" in text and "--training.init" in text and "--resume" in text


def folder_of_words(root: Path) -> Path:
    """Three 'words', each a tone, by 12 speakers; two rates; some noise and other words."""
    random = np.random.default_rng(0)
    for k, word in enumerate(["low", "middle", "high", "other"]):
        for speaker in range(12):
            for take in range(2):
                rate = 4000 if speaker % 2 else 8000
                t = np.arange(int(0.25 * rate)) / rate
                pitch = (200, 500, 1200, 800)[k] * random.uniform(0.95, 1.05)
                sound = 0.3 * np.sin(2 * np.pi * pitch * t) + 0.01 * random.standard_normal(len(t))
                path = root / word / f"{speaker:08x}_nohash_{take}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                save_wav(path, sound.astype(np.float32), rate)
    (root / "_background_noise_").mkdir()
    save_wav(root / "_background_noise_" / "hiss.wav", 0.1 * random.standard_normal(8000).astype(np.float32), 8000)
    return root


@pytest.mark.slow
def test_a_folder_of_recordings_trains_and_classifies_by_one_command(tmp_path: Path, capsys) -> None:
    root, out = folder_of_words(tmp_path / "words"), tmp_path / "run"
    options = [
        "--data.root",
        str(root),
        "--data.cache",
        str(tmp_path),
        "--data.rate",
        "8000",
        "--data.seconds",
        "0.3",
        "--data.validation-percent",
        "25",
        "--data.testing-percent",
        "25",
        "--model.front.f-max",
        "3600",
        "--model.front.n-modes",
        "16",
        "--model.d-model",
        "16",
        "--model.n-layers",
        "1",
        "--model.mixer.ssm-size",
        "16",
        "--training.accelerator",
        "cpu",
        "--training.no-progress",
    ]
    first = [*options, "--training.init", "", "--training.epochs", "30", "--training.out", str(out)]
    assert main(["words", *first]) == 0, capsys.readouterr().err
    results = json.loads((out / "results.json").read_text())
    assert results["test"]["accuracy"] > 0.6  # four words: chance is 0.25
    assert results["command"].startswith("kws-train words --data.root")
    bundle = load(out)
    assert set(bundle.labels) == {"low", "middle", "high", "other"}
    for rate in (4000, 8000):
        t = np.arange(int(0.25 * rate)) / rate
        scores = bundle.classify((0.3 * np.sin(2 * np.pi * 200 * t)).astype(np.float32), rate)
        assert max(scores, key=scores.get) == "low"
    assert main(["words", *first]) == 2 and "--resume" in capsys.readouterr().err
    tuned = [
        *options,
        "--training.out",
        str(tmp_path / "tuned"),
        "--init",
        str(out),
        "--training.epochs",
        "1",
        "--data.words",
        "high",
        "low",
    ]
    assert main(["words", *tuned]) == 0
    assert "2 of 2 words" in capsys.readouterr().out


def test_kinds_of_data_without_words_have_recipes_too() -> None:
    kinds = {type(recipe().data) for recipe in RECIPES.values()}
    assert SeriesData in kinds and (LraData in kinds or "lra-listops" not in RECIPES)
