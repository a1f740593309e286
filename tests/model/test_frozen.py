"""A frozen model streams as the model itself does, and notices changed weights."""

from dataclasses import replace

import pytest
import torch

from kws_s5.config import BankFront, ClassHead, LinearFront, ModelConfig, SSMConfig
from kws_s5.model.frozen import FrozenModel, can_freeze, freeze
from kws_s5.model.sequence import build_model

SSM = SSMConfig(ssm_size=8, blocks=2, dt_max=0.5)
BASE = ModelConfig(d_model=6, n_layers=3, ssm=SSM, n_outputs=3, rate=8000.0, front=BankFront(n_modes=5, f_max=3000),
                   head=ClassHead(frame_logits=True, window=0.2))
VARIANTS = {
    "bank": {}, "linear front": {"front": LinearFront()}, "post-norm": {"prenorm": False},
    "full_glu": {"activation": "full_glu"}, "half_glu2": {"activation": "half_glu2"}, "gelu": {"activation": "gelu"},
    "bilinear exp": {"ssm": replace(SSM, discretization="bilinear", eigenvalues="exp")},
    "all states": {"ssm": replace(SSM, conj_sym=False)}, "no layers": {"n_layers": 0},
}


def make(**changes):
    torch.manual_seed(0)
    model = build_model(replace(BASE, **changes))
    for layer in model.layers:  # statistics and norms that are not the initial ones
        layer.norm.mean.normal_()
        layer.norm.var.uniform_(0.5, 2.0)
        torch.nn.init.normal_(layer.norm.scale)
        torch.nn.init.normal_(layer.norm.bias)
    return model.eval()


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("rescale", [1.0, 8000 / 11025])
def test_a_frozen_model_streams_as_the_model(changes, rescale) -> None:
    model, x = make(**changes), torch.randn(2, 1000, 1)
    state = model.initial_state(2, rescale)
    frozen, ours = FrozenModel(model, float(state["step_rescale"])), dict(state)
    for chunk in x.split([1, 499, 0, 500], 1):
        expected, state = model.stream(chunk, state)
        logits, ours = frozen.stream(chunk, ours)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert ours.keys() == state.keys()
    for name, value in state.items():
        torch.testing.assert_close(ours[name], value, atol=1e-5, rtol=1e-5)


def test_changed_weights_are_noticed() -> None:
    model = make()
    first = freeze(model, 1.0)
    assert freeze(model, 1.0) is first and freeze(model, 2.0) is not first
    again = freeze(model, 1.0)
    model.load_state_dict({name: value + 0.01 for name, value in model.state_dict().items()})
    assert freeze(model, 1.0) is not again


def test_what_cannot_be_frozen_is_told() -> None:
    assert can_freeze(make())
    assert not can_freeze(build_model(replace(BASE, norm="layer")))
    assert not can_freeze(build_model(replace(BASE, cell="gru")))
    assert not can_freeze(build_model(replace(BASE, ssm=replace(SSM, bidirectional=True))))
