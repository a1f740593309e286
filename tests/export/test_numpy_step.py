"""The numpy step of docs/porting.md gives torch's frame logits, for every kind of model that can be exported."""

import numpy as np
import pytest
import torch

from kws_s5.config import GRUMixer, S4DMixer
from kws_s5.errors import UserError
from kws_s5.export.export import constants_of
from kws_s5.export.numpy_step import Step

KINDS = {
    "plain": {},
    "full_glu, three poles": {"activation": "full_glu", "front": {"n_poles": 3}},
    "half_glu2, one pole, last": {"activation": "half_glu2", "front": {"n_poles": 1}, "head": {"pooling": "last"}},
    "gelu, layer norm behind": {"activation": "gelu", "norm": "layer", "prenorm": False},
    "norm behind the SSM": {"ssm_norm": True},
    "frame decoder": {"head": {"frame_decoder": True}},
    "layer norm there, half_glu2": {"ssm_norm": True, "norm": "layer", "activation": "half_glu2"},
    "batch norm behind, bilinear": {"prenorm": False, "ssm": {"discretization": "bilinear"}},
    "exp, absent modes": {"ssm": {"eigenvalues": "exp"}, "front": {"absent": "mean", "gain": 2.0}},
    "clip, both halves": {"ssm": {"eigenvalues": "clip", "conj_sym": False}},
    "no layers": {"n_layers": 0},
    "S4D": {"mixer": S4DMixer(n_states=6, dt_min=0.01, dt_max=0.5), "ssm_norm": True},
    "bilinear S4D, relu": {"mixer": S4DMixer(4, "inv", "bilinear"), "activation": "relu"},
    "no nonlinearity, post-norm": {"activation": "none", "prenorm": False},
}


def torch_frames(bundle, x: np.ndarray, rate: float) -> np.ndarray:
    with torch.no_grad():
        return bundle.model.frame_logits(torch.from_numpy(x)[..., None], step_rescale=bundle.rate / rate).numpy()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("rate", [8000.0, 11025.0])
def test_it_equals_torch(make_bundle, speech, kind, rate) -> None:
    bundle, x = make_bundle(**kind), speech(rate, seconds=0.4)
    step = Step(constants_of(bundle), rate)
    logits, _ = step.run(x[0], step.initial_state())
    np.testing.assert_allclose(logits, torch_frames(bundle, x, rate)[0], atol=1e-4)


def test_it_equals_torch_with_the_shipped_weights_at_44_khz_in_pieces(shipped, speech) -> None:
    x = speech(44100.0, seconds=0.3)
    step = Step(constants_of(shipped), 44100.0)
    state, rows = step.initial_state(), []
    for piece in np.split(x[0], [1, 440, 441, 442, 5000]):
        logits, state = step.run(piece, state)
        rows.append(logits)
    np.testing.assert_allclose(np.concatenate(rows), torch_frames(shipped, x, 44100.0)[0], atol=1e-4)


def test_other_models_are_refused_in_one_line(make_bundle) -> None:
    with pytest.raises(UserError, match="bidirectional"):
        constants_of(make_bundle(ssm={"bidirectional": True}, head={"frame_logits": False}))
    with pytest.raises(UserError, match="its mixer is a GRUMixer"):
        constants_of(make_bundle(mixer=GRUMixer()))
