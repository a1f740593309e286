"""What older versions wrote still means the same: configs, model files, and what their models compute."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kws_s5.bundle import load
from kws_s5.bundle_file import read
from kws_s5.config import ConvMixer, GRUMixer, RunConfig, S5Mixer, from_dict, to_dict
from kws_s5.errors import UserError
from kws_s5.recipes.kws import kws12, kws12_cnn
from kws_s5.recipes.pendulum import pendulum_gru

GOLDEN = Path(__file__).parents[1] / "golden" / "before_mixers"
# the model section of runs as the version before mixers wrote them, front and head left out
SSM = {
    "kind": "SSMConfig",
    "ssm_size": 128,
    "blocks": 8,
    "C_init": "trunc_standard_normal",
    "discretization": "zoh",
    "dt_min": 0.01,
    "dt_max": 0.5,
    "conj_sym": True,
    "bidirectional": False,
    "eigenvalues": "exp",
}
CNN = {
    "d_model": 192,
    "n_layers": 6,
    "ssm": SSM,
    "activation": "half_glu1",
    "norm": "batch",
    "prenorm": True,
    "ssm_norm": False,
    "norm_momentum": 0.95,
    "dropout": 0.05,
    "n_outputs": 0,
    "rate": 0.0,
    "cell": "conv",
}
GRU = {
    "d_model": 30,
    "n_layers": 2,
    "ssm": SSM | {"ssm_size": 16, "dt_max": 0.1, "eigenvalues": "free"},
    "activation": "half_glu2",
    "norm": "layer",
    "prenorm": False,
    "ssm_norm": False,
    "norm_momentum": 0.95,
    "dropout": 0.0,
    "n_outputs": 0,
    "rate": 0.0,
    "cell": "gru",
}


def written_then(run: RunConfig, model: dict) -> RunConfig:
    """``run`` with a model section of then, read from its JSON; front and head are the run's own."""
    value = to_dict(run)
    value["model"] = {"kind": "ModelConfig", "front": value["model"]["front"], "head": value["model"]["head"], **model}
    return from_dict(RunConfig, json.loads(json.dumps(value)))


def test_the_baselines_of_then_are_those_of_today() -> None:
    assert written_then(kws12_cnn(), CNN) == kws12_cnn()
    assert written_then(pendulum_gru(), GRU).model == pendulum_gru().model.__class__(
        **{**vars(pendulum_gru().model), "mixer": GRUMixer(), "activation": "none"}
    )


def test_the_options_of_s5_are_its_mixers() -> None:
    s5 = {**CNN, "cell": "s5", "d_model": 128, "n_layers": 5, "ssm_norm": True}
    assert written_then(kws12(), s5) == kws12()
    del s5["cell"]  # older still
    assert written_then(kws12(), s5) == kws12()
    assert isinstance(written_then(kws12(), s5).model.mixer, S5Mixer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cell": "lstm"}, "unknown key 'cell'"),
        ({"ssm": {"future": 1}}, "unknown key 'future'"),
        ({"ssm": 3}, "mixer"),
        ({"mixer": to_dict(ConvMixer())}, "unknown key"),
    ],
)
def test_what_no_version_wrote_is_refused(change: dict, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        written_then(kws12(), {**CNN, "cell": "s5"} | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cell", ["s5", "gru", "conv"])
def test_models_of_then_load_and_compute_the_same(cell: str) -> None:
    """Files and logits from the code before mixers; training statistics and norms are not the initial ones."""
    bundle = load(GOLDEN / f"{cell}.safetensors")
    x = np.random.default_rng(0).standard_normal((2, 1200, 1)).astype(np.float32)
    with torch.no_grad():
        logits = bundle.model(torch.from_numpy(x)).numpy()
    expected = np.load(GOLDEN / f"{cell}.npz")["logits"]
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_a_model_of_then_saves_as_one_of_today(tmp_path: Path) -> None:
    bundle = load(GOLDEN / "conv.safetensors")
    bundle.save(tmp_path / "model.safetensors")
    tensors, description = read(tmp_path / "model.safetensors")
    assert "layers.0.seq.depthwise.weight" in tensors and description["config"]["model"]["mixer"]["kind"] == "ConvMixer"
    assert load(tmp_path / "model.safetensors").config == bundle.config
