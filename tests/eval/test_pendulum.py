"""The pendulum evaluation: conditions, the state moved on to moments never observed, scores, tables, files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from kws_s5.bundle import Bundle, load
from kws_s5.config import RunConfig
from kws_s5.data.pendulum.store import recordings
from kws_s5.errors import UserError
from kws_s5.eval import pendulum
from kws_s5.eval.pendulum_conditions import Sampling, answers, held, query_samplings, samplings, scores
from kws_s5.eval.pendulum_tables import markdown, training
from kws_s5.model import build_model
from kws_s5.recipes import pendulum as recipes

N = 6


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    run = recipes.pendulum()
    data = replace(run.data, n_train=2, n_validation=2, n_test=N, cache=str(tmp_path_factory.mktemp("cache")))
    return replace(run, data=data, model=replace(run.model, n_outputs=2))


@pytest.fixture(scope="module")
def bundle(config) -> Bundle:
    return untrained(config)


def untrained(config: RunConfig) -> Bundle:
    torch.manual_seed(0)
    return Bundle(build_model(config.model).eval(), config)


def test_conditions_have_the_frames_they_are_named_after() -> None:
    seen = {s.name: s for s in samplings(N)}
    assert [s.n_seen for s in seen.values()] == [50, 25, 75, 50, 25, 100, 50, 50]
    assert (np.diff(seen["every 4th (half rate)"].seen[0]) == 4).all()
    for sampling in seen.values():
        assert len(sampling.seen) == N and all(len(frames) == sampling.n_seen for frames in sampling.seen)


def test_queries_lie_behind_the_first_frame_and_are_never_seen_frames() -> None:
    for sampling in query_samplings(50):
        for shown, asked in zip(sampling.seen, sampling.queries, strict=True):
            assert len(asked) == 10 and asked.min() > shown[0] and not set(asked) & set(shown)
            assert (asked % 0.25 == 0).all()
    between = query_samplings(50)[1].queries
    assert all((moments % 1 != 0).all() for moments in between)


def test_answers_are_the_models_own_outputs(bundle: Bundle) -> None:
    recording = recordings(bundle.config.data)["test"]
    given = answers(bundle, recording, samplings(N)[0])
    from kws_s5.data.batch import collate
    from kws_s5.data.build import build

    test = build(bundle.config.data).test
    mean, variance = bundle.logits(collate([test[i] for i in range(N)]))
    np.testing.assert_allclose(given.mean, mean, atol=1e-6)
    np.testing.assert_allclose(given.variance, variance, atol=1e-6)
    assert given.is_seen.all()


def test_without_input_the_first_layers_state_moves_on_exactly(bundle: Bundle) -> None:
    """x(t + d) = exp(Lambda Delta d) x(t), the free motion of the continuous-time system."""
    layer, u = bundle.model.layers[0].seq, torch.randn(1, 2, 30)
    before = layer(u, dt=torch.tensor([[1.0, 2.0]]), return_state=True)[1]
    stop = torch.cat([u, torch.zeros(1, 1, 30)], 1)
    after = layer(stop, dt=torch.tensor([[1.0, 2.0, 1.25]]), return_state=True)[1]
    Lambda = torch.complex(*layer.Lambda()) * torch.exp(layer.log_step[:, 0])
    expected = torch.exp(1.25 * Lambda) * torch.complex(*before.chunk(2, -1))
    torch.testing.assert_close(torch.complex(*after.chunk(2, -1)), expected, atol=1e-5, rtol=1e-4)


def test_held_answers_are_those_of_the_last_seen_frame(bundle: Bundle) -> None:
    recording = recordings(bundle.config.data)["test"]
    frames = [np.array([0, 5, 9])] * N
    given = answers(bundle, recording, Sampling("few", 3, frames))
    asked = answers(bundle, recording, Sampling("few", 3, frames, [np.array([2.25, 5.5])] * N))
    kept = held(given, asked)
    np.testing.assert_array_equal(asked.times[0], [0, 2.25, 5, 5.5, 9])
    np.testing.assert_allclose(kept, given.mean[:, [0, 0, 1, 1, 2]])
    first = answers(bundle, recording, Sampling("few", 3, frames, [np.array([2.25, 5.5])] * N), blank=True)
    np.testing.assert_allclose(first.mean[:, 0], given.mean[:, 0], atol=1e-6)  # causal: nothing changes before a query


def test_scores_of_known_errors() -> None:
    truth = np.array([[[0.0, 1.0], [1.0, 0.0], [0.0, -1.0]]])
    mean = np.array([[[0.1, 1.0], [1.0, 0.0], [9.0, 9.0]]])
    steps = np.array([[True, True, False]])
    found = scores(truth, mean, np.full_like(mean, 0.01), steps)
    assert found["mse"] == pytest.approx(0.01 / 4)
    assert found["degrees"] == pytest.approx(np.degrees(np.arctan(0.1)) / np.sqrt(2), rel=1e-6)
    expected = -torch.distributions.Normal(torch.from_numpy(mean), 0.1).log_prob(torch.from_numpy(truth))[0, :2].sum(-1)
    assert found["nll"] == pytest.approx(float(expected.mean()))
    assert found["coverage"] == 1.0
    assert set(scores(truth, mean, None, steps)) == {"mse", "standard_error", "degrees"}


def test_the_standard_error_comes_from_the_spread_over_sequences() -> None:
    truth, mean = np.zeros((4, 5, 2)), np.zeros((4, 5, 2))
    mean[:2] = 1.0
    assert scores(truth, mean, None, np.ones((4, 5), bool))["standard_error"] == pytest.approx(0.5 / 2)


@pytest.mark.parametrize("recipe", [recipes.pendulum_drop, recipes.pendulum_append, recipes.pendulum_gru])
def test_every_variant_is_judged_on_every_condition(recipe, config: RunConfig) -> None:
    run = recipe()
    bundle = untrained(
        replace(run, data=replace(config.data, use_dt=run.data.use_dt), model=replace(run.model, n_outputs=2))
    )
    rows = pendulum.evaluate(bundle, recordings(config.data)["test"])
    assert len(rows) == 8 + 2 * 3 and all(np.isfinite(row["mse"]) for row in rows)


def test_seeds_are_joined_into_mean_and_standard_deviation() -> None:
    common = {"model": "a", "kind": "seen", "condition": "random 50", "n_seen": 50, "degrees": 1.0}
    (row,) = pendulum.summary([{**common, "mse": 0.003}, {**common, "mse": 0.005}])
    assert row["mse"] == pytest.approx(0.004) and row["std"] == pytest.approx(0.002**0.5 * 0.0316227766, rel=1e-5)
    assert pendulum.summary([{**common, "mse": 0.003}])[0]["std"] is None


def test_the_command_writes_table_numbers_and_plots(bundle: Bundle, config: RunConfig, tmp_path, capsys) -> None:
    second = untrained(replace(config, training=replace(config.training, seed=1)))
    bundle.save(tmp_path / "first.safetensors"), second.save(tmp_path / "second.safetensors")
    out = tmp_path / "out"
    models = [str(tmp_path / "first.safetensors"), str(tmp_path / "second.safetensors")]
    assert pendulum.main([*models, "--n", "4", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "every frame (double rate)" in printed and "(0.00)" in printed
    report = json.loads((out / "results.json").read_text())
    assert report["n"] == 4 and len(report["rows"]) == 28 and report["parameters"] == {"pendulum": 15820}
    assert report["training"] == []  # model files do not tell
    tables = (out / "tables.md").read_text().splitlines()
    assert tables[0] == "| frames seen | pendulum |" and any(line.startswith("| 2 bursts of 25 |") for line in tables)
    for name in ("density.png", "angle.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_finished_runs_tell_what_training_gave(tmp_path) -> None:
    for seed, mse in ((0, 0.003), (1, 0.005)):
        results = {
            "name": "pendulum",
            "seed": seed,
            "chosen": "epoch 9",
            "epochs": 10,
            "n_parameters": 15820,
            "seconds": 40.0,
            "validation": {"mse": mse},
            "test": {"mse": 2 * mse},
        }
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "results.json").write_text(json.dumps(results))
    runs = [training(str(tmp_path / name)) for name in ("0", "1", "2")]
    assert runs[2] is None
    text = markdown({"training": runs[:2], "summary": []})
    assert "| pendulum | 15,820 | 10 | 0, 1 | 4.00 (1.41) | 8.00 (2.83) |" in text


def test_models_of_other_tasks_are_refused(tmp_path, config: RunConfig, capsys) -> None:
    from kws_s5.config import KeywordData

    untrained(replace(config, data=KeywordData())).save(tmp_path / "words.safetensors")
    assert pendulum.main([str(tmp_path / "words.safetensors")]) == 2
    assert "not a pendulum model" in capsys.readouterr().err


def test_gru_models_are_saved_and_loaded(tmp_path, config: RunConfig) -> None:
    run = recipes.pendulum_gru()
    bundle = untrained(replace(run, model=replace(run.model, n_outputs=2)))
    bundle.save(tmp_path / "gru.safetensors")
    assert load(tmp_path / "gru.safetensors").config == bundle.config


def test_sequences_of_another_length_and_damaged_results_are_refused(tmp_path, config: RunConfig, capsys) -> None:
    untrained(replace(config, data=replace(config.data, n_frames=60))).save(tmp_path / "short.safetensors")
    assert pendulum.main([str(tmp_path / "short.safetensors")]) == 2
    assert "trained on sequences of 60 frames" in capsys.readouterr().err
    for text in ("{", "[]", '{"name": "pendulum"}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(UserError, match=r"results\.json: is not of a finished run"):
            training(str(tmp_path))
