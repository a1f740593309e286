"""The graphs in onnxruntime give torch's logits: every rate, batch, chunking, clip length and kind of model."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.config import S4DMixer
from kws_s5.export.export import constants_of
from kws_s5.export.model_graph import clip_graph, step_graph, zero_state

KINDS = {
    "plain": {},
    "full_glu, three poles": {"activation": "full_glu", "front": {"n_poles": 3}},
    "half_glu2, one pole, last": {"activation": "half_glu2", "front": {"n_poles": 1}, "head": {"pooling": "last"}},
    "gelu, layer norm behind": {"activation": "gelu", "norm": "layer", "prenorm": False},
    "batch norm behind, bilinear": {"prenorm": False, "ssm": {"discretization": "bilinear"}},
    "norm behind the SSM": {"ssm_norm": True},
    "frame decoder": {"head": {"frame_decoder": True}},
    "layer norm there, half_glu2": {"ssm_norm": True, "norm": "layer", "activation": "half_glu2"},
    "clip, both halves, gain": {"ssm": {"eigenvalues": "clip", "conj_sym": False}, "front": {"gain": 2.0}},
    "no layers, absent modes": {"n_layers": 0, "front": {"absent": "mean"}},
    "S4D": {"mixer": S4DMixer(n_states=6, dt_min=0.01, dt_max=0.5), "ssm_norm": True},
    "bilinear S4D, relu": {"mixer": S4DMixer(4, "inv", "bilinear"), "activation": "relu"},
    "no nonlinearity, post-norm": {"activation": "none", "prenorm": False},
}


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def streamed(runtime, constants, x: np.ndarray, rate: float, cuts=(), *, free: bool = True) -> np.ndarray:
    """Logits of x (N, L) pushed in pieces."""
    state, edges, rows = zero_state(constants, len(x), free_rate=free), [0, *sorted(cuts), x.shape[1]], []
    for begin, end in zip(edges, edges[1:], strict=False):
        inputs = {"sound": x[:, begin:end], **state, **({"rate": np.array(rate)} if free else {})}
        logits, *following = runtime.run(["logits", *(f"next_{name}" for name in state)], inputs)
        state = dict(zip(state, following, strict=True))
        rows.append(logits)
    return np.concatenate(rows, 1)


def torch_frames(bundle, x: np.ndarray, rate: float) -> np.ndarray:
    with torch.no_grad():
        return bundle.model.frame_logits(torch.from_numpy(x)[..., None], step_rescale=bundle.rate / rate).numpy()


@pytest.fixture(scope="module")
def shipped_step(shipped):
    constants = constants_of(shipped)
    return session(step_graph(constants, metadata={})), constants


@pytest.mark.parametrize("N", [1, 7])
@pytest.mark.parametrize("rate", [8000.0, 16000.0, 44100.0])
def test_streamed_speech_gives_the_logits_of_torch(shipped, shipped_step, speech, rate, N) -> None:
    x = speech(rate, N)
    cuts = np.random.default_rng(0).integers(0, x.shape[1], 12).tolist()
    logits = streamed(*shipped_step, x, rate, cuts)
    np.testing.assert_allclose(logits, torch_frames(shipped, x, rate), atol=1e-4)


@pytest.mark.parametrize("N", [1, 7])
@pytest.mark.parametrize("rate", [8000.0, 16000.0, 44100.0])
def test_clips_of_speech_give_the_logits_of_torch(shipped, speech, rate, N) -> None:
    x = speech(rate, N)
    lengths = np.round(x.shape[1] * np.linspace(1.0, 0.4, N)).astype(np.int64)  # padding holds sound: it must not count
    runtime = session(clip_graph(constants_of(shipped), metadata={}))
    (logits,) = runtime.run(None, {"sound": x, "lengths": lengths, "rate": np.array(rate)})
    with torch.no_grad():
        inputs = torch.from_numpy(x)[..., None], torch.from_numpy(lengths)
        expected = shipped.model(*inputs, step_rescale=shipped.rate / rate).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_model_streams_and_hears_clips(make_bundle, speech, kind) -> None:
    bundle, rate = make_bundle(**kind), 11025.0
    constants, x = constants_of(bundle), speech(rate, 2, seconds=0.5)
    logits = streamed(session(step_graph(constants, metadata={})), constants, x, rate, [1, 17, 1000, 1000, 3333])
    np.testing.assert_allclose(logits, torch_frames(bundle, x, rate), atol=1e-4)
    lengths = np.array([x.shape[1], 900])
    runtime = session(clip_graph(constants, metadata={}))
    (clip,) = runtime.run(None, {"sound": x, "lengths": lengths, "rate": np.array(rate)})
    with torch.no_grad():
        inputs = torch.from_numpy(x)[..., None], torch.from_numpy(lengths)
        np.testing.assert_allclose(clip, bundle.model(*inputs, step_rescale=16000 / rate).numpy(), atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(
    rate=st.sampled_from([8000.0, 11025.0, 44100.0, 96000.0]),
    shares=st.lists(st.floats(0, 1), max_size=10),
    tiny=st.integers(0, 20),
)
def test_any_chunking_gives_the_same_logits(make_bundle, speech, rate, shares, tiny) -> None:
    bundle = make_bundle(front={"n_modes": 3}, n_layers=1)
    constants, x = constants_of(bundle), speech(rate, seconds=0.3)
    cuts = [int(share * x.shape[1]) for share in shares] + list(range(100, 100 + tiny))
    logits = streamed(session(step_graph(constants, metadata={})), constants, x, rate, cuts)
    np.testing.assert_allclose(logits, torch_frames(bundle, x, rate), atol=1e-4)


def test_a_fixed_rate_needs_no_input_for_it(make_bundle, speech) -> None:
    bundle, rate = make_bundle(), 8000.0
    constants, x = constants_of(bundle), speech(rate)
    runtime = session(step_graph(constants, rate=rate, metadata={}))
    assert not {"rate", "taps"} & {value.name for value in runtime.get_inputs()}
    np.testing.assert_allclose(
        streamed(runtime, constants, x, rate, [700], free=False), torch_frames(bundle, x, rate), atol=1e-4
    )


def test_clips_shorter_than_a_frame_and_empty_ones(make_bundle, speech) -> None:
    bundle, rate = make_bundle(), 16000.0
    runtime = session(clip_graph(constants_of(bundle), metadata={}))
    for L, lengths in ((400, [400, 100, 0]), (90, [90, 17, 1])):
        x, lengths = speech(rate, 3)[:, 8000 : 8000 + L], np.array(lengths)
        (clip,) = runtime.run(None, {"sound": x, "lengths": lengths, "rate": np.array(rate)})
        with torch.no_grad():
            expected = bundle.model(torch.from_numpy(x.copy())[..., None], torch.from_numpy(lengths)).numpy()
        np.testing.assert_allclose(clip, expected, atol=1e-4)


def test_a_day_of_sound_later_frames_still_fall_where_they_should(make_bundle, speech) -> None:
    bundle, rate = make_bundle(), 11025.0
    constants, x = constants_of(bundle), speech(rate)
    runtime = session(step_graph(constants, metadata={}))
    state = zero_state(constants, 1, free_rate=True)
    (taps,) = runtime.run(["next_taps"], {"sound": x[:, :1], "rate": np.array(rate), **state})
    state |= {"position": np.array(86_400 * 11_025), "taps": taps}
    counts = [
        runtime.run(["logits"], {"sound": x[:, :l], "rate": np.array(rate), **state})[0].shape[1]
        for l in (110, 111, 220, 221, 11_025)
    ]
    assert counts == [0, 1, 1, 2, 100]


def test_all_arithmetic_is_real(shipped) -> None:
    model = step_graph(constants_of(shipped), metadata={})
    complex_types = {onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128}
    assert not {value.type.tensor_type.elem_type for value in [*model.graph.input, *model.graph.output]} & complex_types
    assert not {tensor.data_type for tensor in model.graph.initializer} & complex_types
    assert {opset.domain for opset in model.opset_import} == {""}  # standard operators only
