"""One backbone, every mixer: a tiny run trains, its model listens at other rates, and is exported or refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import RATE, bank_model, log, tones, toy_config

from kws_s5.bundle import Bundle, load
from kws_s5.config import MIXERS, S4DMixer, S5Mixer
from kws_s5.errors import UserError
from kws_s5.export.export import export
from kws_s5.listening.onnx_engine import OnnxModel
from kws_s5.listening.session import StreamingSession
from kws_s5.listening.spotter import KeywordSpotter
from kws_s5.training.run import train

SMALL = {
    "s5": S5Mixer(ssm_size=8, blocks=2, dt_min=0.01, dt_max=0.5),
    "s4d": S4DMixer(n_states=4, dt_min=0.01, dt_max=0.5),
}


@pytest.fixture(scope="module", params=MIXERS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Bundle]:
    """The mixer's name and the model of a run of seconds."""
    out = tmp_path_factory.mktemp("runs") / request.param
    mixer = SMALL.get(request.param, MIXERS[request.param]())
    config = replace(toy_config(out=str(out), epochs=5, frame_weight=0.5), model=replace(bank_model(), mixer=mixer))
    train(config, splits=tones())
    rows = log(out)
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]
    return request.param, load(out)


def sound(rate: float) -> np.ndarray:
    t = np.arange(round(0.9 * rate)) / rate
    noise = np.random.default_rng(0).standard_normal(len(t))
    return (0.3 * np.sin(2 * np.pi * 60 * t) + 0.02 * noise).astype(np.float32)


def heard(model: object, x: np.ndarray, rate: float) -> np.ndarray:
    """Logits of a stream cut into odd pieces."""
    session = StreamingSession(model, rate)
    pieces = np.split(x, [1, 7, 8, 200, 201])
    return np.concatenate([session.push(piece).logits for piece in pieces] + [session.flush().logits], 1)


@pytest.mark.parametrize("rate", [2000.0, 4410.0])
def test_a_stream_gives_the_scores_of_the_whole_recording(trained: tuple[str, Bundle], rate: float) -> None:
    _, bundle = trained
    x = sound(rate)
    with torch.no_grad():
        expected = bundle.model.frame_logits(torch.from_numpy(x)[None, :, None], step_rescale=RATE / rate).numpy()
    np.testing.assert_allclose(heard(bundle, x, rate), expected, atol=1e-4, rtol=1e-4)
    assert not StreamingSession(bundle, rate).remark  # the state is carried on; no window slides along
    assert isinstance(list(KeywordSpotter(bundle).find(x, rate)), list)


def test_it_is_exported_or_refused_in_one_line(trained: tuple[str, Bundle], tmp_path: Path) -> None:
    name, bundle = trained
    if name not in ("s5", "s4d"):
        with pytest.raises(UserError, match=f"its mixer is a {type(bundle.config.model.mixer).__name__}") as caught:
            export(bundle, "model", tmp_path)
        assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())
        return
    files = export(bundle, "model", tmp_path)  # compares both graphs with torch, at 1e-4
    assert {file.kind for file in files} == {"step", "clip"} and max(file.difference for file in files) < 1e-4
    rate = 2000.0
    np.testing.assert_allclose(
        heard(OnnxModel(files[0].path), sound(rate), rate), heard(bundle, sound(rate), rate), atol=1e-4, rtol=1e-4
    )
