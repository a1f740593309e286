"""The compiled stream equals the plain one, whatever the model, the rate and the chunking; and itself to the bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.bundle import load
from kws_s5.config import BankFront, ClassHead, LinearFront, LogMelFront, ModelConfig, S4DMixer, S5Mixer
from kws_s5.listening.packed_stream import PackedStream
from kws_s5.model.sequence import build_model

SSM = S5Mixer(ssm_size=8, blocks=2, dt_max=0.5)
BASE = ModelConfig(
    d_model=6,
    n_layers=3,
    mixer=SSM,
    n_outputs=3,
    rate=8000.0,
    front=BankFront(n_modes=5, f_max=3000),
    head=ClassHead(frame_logits=True, window=0.2),
)
VARIANTS = {
    "bank": {},
    "absent modes": {"front": BankFront(n_modes=5, f_max=3900)},
    "post-norm": {"prenorm": False},
    "linear": {"front": LinearFront(), "rate": 400.0},
    "log-mel": {"front": LogMelFront(n_mels=5)},
    "full_glu": {"activation": "full_glu"},
    "half_glu2": {"activation": "half_glu2"},
    "gelu": {"activation": "gelu"},
    "bilinear exp": {"mixer": replace(SSM, discretization="bilinear", eigenvalues="exp")},
    "all states": {"mixer": replace(SSM, conj_sym=False)},
    "no layers": {"n_layers": 0},
    "last": {"head": ClassHead("last", frame_logits=True)},
    "frame decoder": {"head": ClassHead(frame_logits=True, frame_decoder=True, window=0.1)},
    "norm behind the SSM": {"ssm_norm": True},
    "both behind": {"ssm_norm": True, "prenorm": False},
    "wide": {"d_model": 70, "mixer": replace(SSM, ssm_size=36)},
    "many outputs": {"n_outputs": 40},
    "S4D": {"mixer": S4DMixer(n_states=6, dt_max=0.5), "ssm_norm": True},
}


def make(**changes):
    torch.manual_seed(0)
    model = build_model(replace(BASE, **changes))
    norms = [layer.norm for layer in model.layers] + [m for m in [getattr(model.front, "norm", None)] if m is not None]
    for norm in norms:  # statistics and norms that are not the initial ones
        norm.mean.normal_()
        norm.var.uniform_(0.5, 2.0)
        torch.nn.init.normal_(norm.scale)
        torch.nn.init.normal_(norm.bias)
    return model.eval()


def compiled(model, x: np.ndarray, cuts: list[int], rescale: float = 1.0):
    """Logits and last state of x (N, L) cut at ``cuts``."""
    state = model.initial_state(len(x), rescale)
    stream = PackedStream(model, state)
    return np.concatenate([stream.advance(piece, state) for piece in np.split(x, cuts, 1)], 1), state


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("rescale", [1.0, 8000 / 5513])
def test_a_compiled_stream_equals_the_plain_one(changes, rescale) -> None:
    rescale = 1.0 if isinstance(changes.get("front"), LogMelFront) else rescale  # it is tied to its rate
    model, x = make(**changes), np.random.default_rng(0).standard_normal((3, 3000)).astype(np.float32)
    cuts = [1, 500, 500, 1400, 2999]
    logits, state = compiled(model, x, cuts, rescale)
    expected, parts = model.initial_state(3, rescale), []
    for piece in np.split(x, cuts, 1):
        part, expected = model.stream(torch.from_numpy(piece)[..., None], expected)
        parts.append(part)
    torch.testing.assert_close(torch.from_numpy(logits), torch.cat(parts, 1), atol=1e-4, rtol=1e-5)
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, atol=1e-4, rtol=1e-5, msg=name)


MODEL = make()
SOUND = np.random.default_rng(1).standard_normal((2, 7000)).astype(np.float32)
WHOLE, _ = compiled(MODEL, SOUND, [])


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 7000), max_size=12))
def test_any_chunking_gives_the_same_bits(cuts) -> None:
    assert np.array_equal(compiled(MODEL, SOUND, sorted(cuts))[0], WHOLE)


def test_the_shipped_model_runs_compiled_and_equals_itself() -> None:
    model, x = load("commands12").model.eval(), 0.1 * SOUND[:1]
    expected, _ = model.stream(torch.from_numpy(x)[..., None], model.initial_state(1))
    np.testing.assert_allclose(compiled(model, x, [160, 2000])[0], expected, atol=1e-4, rtol=1e-5)


def test_streams_do_not_see_each_other() -> None:
    for row, logits in zip(SOUND, WHOLE, strict=True):
        assert np.array_equal(compiled(MODEL, row[None], [3000])[0][0], logits)


def test_threads_share_the_streams() -> None:
    x, before = np.random.default_rng(2).standard_normal((9, 4000)).astype(np.float32), torch.get_num_threads()
    alone, _ = compiled(MODEL, x, [1000])
    torch.set_num_threads(4)
    try:
        together, _ = compiled(MODEL, x, [1000])
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(alone, together)


def test_a_packed_stream_goes_from_state_to_state() -> None:
    a, b = MODEL.initial_state(2), MODEL.initial_state(2)
    stream = PackedStream(MODEL, a)
    first = [stream.advance(SOUND[:, :3333], state) for state in (a, b)]
    second = [stream.advance(SOUND[:, 3333:], state) for state in (a, b)]
    for i in range(2):
        assert np.array_equal(np.concatenate([first[i], second[i]], 1), WHOLE)
    copy = {name: value.clone() for name, value in MODEL.initial_state(2).items()}
    assert np.array_equal(stream.advance(SOUND, copy), WHOLE)
    assert int(copy["front.position"]) == 7000 and int(copy["head.seen"]) == WHOLE.shape[1]
