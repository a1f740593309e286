"""Models without a sample rate are judged by their own objective."""

import json

import pytest
import torch

from kws_s5.bundle import Bundle
from kws_s5.config import ModelConfig, PendulumData, RunConfig, S5Mixer, TokenFront
from kws_s5.config.model import FrameFront, GaussianHead
from kws_s5.data.batch import Example
from kws_s5.data.build import build
from kws_s5.errors import UserError
from kws_s5.eval.cli import main
from kws_s5.eval.evaluate import evaluate_plain
from kws_s5.model.sequence import build_model

SSM = S5Mixer(ssm_size=8, blocks=1)


def test_accuracy_of_token_sequences_is_counted_over_all_batches():
    torch.manual_seed(0)
    model = ModelConfig(d_model=4, n_layers=1, front=TokenFront(vocab_size=5), n_outputs=3, mixer=SSM)
    bundle = Bundle(build_model(model).eval(), RunConfig(model=model))
    dataset = [Example(torch.randint(5, (4 + i,)), torch.tensor(i % 3)) for i in range(7)]
    with torch.no_grad():
        correct = sum(int(bundle.model(e.x[None]).argmax()) == int(e.y) for e in dataset)
    scores = evaluate_plain(bundle, dataset, batch_size=3)
    assert scores["accuracy"] == pytest.approx(correct / 7) and scores["n"] == 7
    with pytest.raises(UserError, match="no examples"):
        evaluate_plain(bundle, [])


def test_the_pendulum_is_judged_by_its_squared_error_from_the_command_line(tmp_path, capsys):
    torch.manual_seed(0)
    data = PendulumData(n_train=2, n_validation=2, n_test=3, n_frames=8, n_observed=5, cache=str(tmp_path / "cache"))
    splits = build(data)
    model = ModelConfig(
        d_model=4,
        n_layers=1,
        front=FrameFront(),
        head=GaussianHead(hidden=4),
        norm="layer",
        n_outputs=splits.n_outputs,
        mixer=SSM,
    )
    bundle = Bundle(build_model(model).eval(), RunConfig(name="pendulum", data=data, model=model))
    bundle.save(tmp_path / "run" / "model.safetensors")
    with torch.no_grad():
        errors = [
            (bundle.model(e.x[None], dt=e.dt[None])[0][0] - e.y).square().mean()
            for e in (splits.test[i] for i in range(3))
        ]
    assert main([str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mse"] == pytest.approx(float(torch.stack(errors).mean()), rel=1e-4) and found["n"] == 3
    assert json.loads((tmp_path / "run" / "eval" / "results.json").read_text()) == found
    assert main([str(tmp_path / "run"), "--data", "somewhere"]) == 2
    assert "models of sound" in capsys.readouterr().err
