"""Configs survive JSON, and reading them is strict."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from kws_s5.config import BankFront, ClassHead, LraData, ModelConfig, RunConfig, S5Mixer, from_dict, to_dict
from kws_s5.errors import UserError


def through_json(config: RunConfig) -> RunConfig:
    return from_dict(RunConfig, json.loads(json.dumps(to_dict(config))))


def test_config_survives_json() -> None:
    model = ModelConfig(front=BankFront(n_modes=48), head=ClassHead(frame_logits=True), mixer=S5Mixer(blocks=4))
    config = RunConfig(name="x", model=model, data=LraData(task="text"))
    assert through_json(config) == config
    assert through_json(RunConfig()) == RunConfig()


def test_configs_of_older_models_load_with_the_names_of_then() -> None:
    old = to_dict(RunConfig())
    old["data"]["testing_percent"] = 2 * old["data"].pop("test_percent")
    assert from_dict(RunConfig, old).data.test_percent == 20.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(colour=1), "unknown key 'colour'"),
        (lambda d: d["model"].update(d_model="wide"), "config.model.d_model"),
        (lambda d: d["model"].update(prenorm=1), "config.model.prenorm"),
        (lambda d: d["model"]["front"].update(kind="Nope"), "config.model.front.kind"),
        (lambda d: d["model"]["mixer"].update(blocks=7), "mixer.blocks"),
        (lambda d: d["data"].update(on_bad_file="maybe"), "on_bad_file"),
        (lambda d: d["augment"].update(noise_snr=[1.0]), "expected 2 values"),
        (lambda d: d["data"].update(rate=1e9), "data.rate"),
        (lambda d: d["data"].update(seconds=1e9), "data.seconds"),
        (lambda d: d["data"].update(validation_percent=-1.0), "data.validation_percent"),
        (lambda d: d["data"].update(test_percent=float("nan")), "data.test_percent"),
        (lambda d: d["data"].update(unknown_share=-0.5), "data.unknown_share"),
        (lambda d: d["data"].update(seed=-1), "data.seed"),
        (lambda d: d["training"].update(seed=-1), "training.seed"),
        (lambda d: d["training"].update(seed=2**40), "training.seed"),
        (lambda d: d["training"].update(n_workers=-1), "training.n_workers"),
        (lambda d: d["model"]["head"].update(window=-1.0), "head.window = -1.0"),
        (lambda d: d["model"]["head"].update(window=0.0), "head.window = 0.0"),
        (lambda d: d["model"]["head"].update(window=1e7), "head.window"),
        (lambda d: d["model"]["head"].update(window=float("nan")), "head.window"),
        (
            lambda d: d["model"].update(rate=192e3, head={"kind": "ClassHead", "frame_logits": True, "window": 60.0}),
            "1048576 frames",
        ),
        (lambda d: d["model"].update(front={"kind": "BankFront", "frame_rate": 1e9}), "front.frame_rate"),
        (lambda d: d["model"].update(norm_momentum=5.0), "model.norm_momentum"),
        (lambda d: d["model"].update(norm_momentum=1.0), "model.norm_momentum"),
        (lambda d: d.update(optim=3), "expected the fields of OptimConfig"),
    ],
)
def test_wrong_config_is_one_line_naming_the_field(change, says: str) -> None:
    value = to_dict(RunConfig())
    change(value)
    with pytest.raises(UserError, match=says) as caught:
        from_dict(RunConfig, value)
    assert "\n" not in str(caught.value)


def test_configs_do_not_import_torch() -> None:
    code = "import sys, kws_s5.config; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_integers_are_welcome_where_floats_are_expected() -> None:
    value = to_dict(RunConfig())
    value["optim"]["lr"] = 1
    assert from_dict(RunConfig, value) == replace(RunConfig(), optim=replace(RunConfig().optim, lr=1.0))
