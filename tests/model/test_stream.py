"""Streaming equals the offline pass: any chunking, any rate, through a saved state, without drift."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from kws_s5.config import ClassHead, LinearFront, ModelConfig, S5Mixer, TokenFront
from kws_s5.errors import UserError
from kws_s5.model import SequenceModel, build_model

SSM = S5Mixer(ssm_size=8, blocks=2, dt_max=0.05)
BASE = ModelConfig(
    d_model=6, n_layers=3, mixer=SSM, n_outputs=3, rate=100.0, head=ClassHead(frame_logits=True, window=0.5)
)
L = 140


def make(**changes: object) -> SequenceModel:
    torch.manual_seed(0)
    model = build_model(replace(BASE, **changes))
    x = torch.randint(11, (4, 30)) if isinstance(model.config.front, TokenFront) else torch.randn(4, 30, 1)
    for _ in range(20):  # statistics that are not the initial ones
        model.train()(x)
    return model.eval()


def run(model: SequenceModel, x: torch.Tensor, cuts: list[int], rescale: float | torch.Tensor = 1.0) -> torch.Tensor:
    state, parts, start = model.initial_state(len(x), rescale), [], 0
    sizes = {name: value.shape for name, value in state.items()}
    for end in [*sorted(cuts), x.shape[1]]:
        logits, state = model.stream(x[:, start:end], state)
        parts.append(logits)
        start = end
        assert {name: value.shape for name, value in state.items()} == sizes
    return torch.cat(parts, 1)


VARIANTS = {
    "batch": {},
    "layer": {"norm": "layer"},
    "post-norm": {"prenorm": False},
    "last": {"head": ClassHead("last", frame_logits=True)},
    "full_glu": {"activation": "full_glu"},
    "frame decoder": {"head": ClassHead(frame_logits=True, frame_decoder=True, window=0.1)},
    "bilinear exp": {"mixer": replace(SSM, discretization="bilinear", eigenvalues="exp")},
    "norm behind the SSM": {"ssm_norm": True},
    "layer norm there": {"ssm_norm": True, "norm": "layer"},
    "tokens": {"front": TokenFront(11)},
    "no layers": {"n_layers": 0},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_a_stream_equals_the_offline_frames(changes: dict) -> None:
    model = make(**changes)
    x = torch.randint(11, (2, L)) if "front" in changes else torch.randn(2, L, 1)
    torch.testing.assert_close(run(model, x, [1, 1, 2, 50, 139]), model.frame_logits(x), atol=1e-4, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, L), max_size=12), rescale=st.sampled_from([0.25, 1.0, 16 / 11.025, 2.0]))
def test_any_chunking_at_any_rate_gives_the_same_frames(cuts: list[int], rescale: float) -> None:
    model, x = MODEL, torch.randn(1, L, 1, generator=torch.Generator().manual_seed(len(cuts)))
    offline = model.frame_logits(x, step_rescale=rescale)
    torch.testing.assert_close(run(model, x, cuts, rescale), offline, atol=1e-4, rtol=1e-4)


MODEL = make()


def test_sample_by_sample_equals_the_whole() -> None:
    x = torch.randn(2, L, 1)
    torch.testing.assert_close(run(MODEL, x, list(range(1, L))), MODEL.frame_logits(x), atol=1e-4, rtol=1e-4)


def test_streams_of_different_rates_run_side_by_side() -> None:
    x, rescale = torch.randn(3, L, 1), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    offline = MODEL.frame_logits(x, step_rescale=rescale)
    torch.testing.assert_close(run(MODEL, x, [3, 70], rescale), offline, atol=1e-4, rtol=1e-4)


def test_the_stream_decides_as_the_clip_at_its_end() -> None:
    x = torch.randn(2, 50, 1)  # as long as the window
    torch.testing.assert_close(run(MODEL, x, [11, 30])[:, -1], MODEL(x), atol=1e-4, rtol=1e-4)


def test_a_saved_state_goes_on_and_the_old_one_stays(tmp_path: Path) -> None:
    x = torch.randn(2, L, 1)
    _, state = MODEL.stream(x[:, :60], MODEL.initial_state(2))
    save_file(state, tmp_path / "state.safetensors")
    first, _ = MODEL.stream(x[:, 60:], state)
    again, _ = MODEL.stream(x[:, 60:], load_file(tmp_path / "state.safetensors"))
    assert torch.equal(first, again) and torch.equal(first, MODEL.stream(x[:, 60:], state)[0])


def test_a_stream_keeps_no_graph_and_does_not_touch_the_norms() -> None:
    before = MODEL.layers[0].norm.mean.clone()
    logits, state = MODEL.stream(torch.randn(1, 9, 1), MODEL.initial_state(1))
    assert not logits.requires_grad and not any(value.requires_grad for value in state.values())
    assert torch.equal(MODEL.layers[0].norm.mean, before)


def test_a_long_stream_ends_as_a_fresh_one_does() -> None:
    model, state = make(mixer=replace(SSM, dt_min=0.02)), None
    x = torch.randn(1, 20_000, 1)
    state = model.initial_state(1)
    for chunk in x.split(160, dim=1):
        logits, state = model.stream(chunk, state)
    fresh = model.frame_logits(x[:, -4000:])
    torch.testing.assert_close(logits[:, -1], fresh[:, -1], atol=1e-4, rtol=1e-4)


def test_models_that_cannot_stream_say_why() -> None:
    with pytest.raises(UserError, match="bidirectional"):
        make(mixer=replace(SSM, bidirectional=True)).initial_state(1)
    with pytest.raises(UserError, match="frame_logits"):
        make(head=ClassHead()).initial_state(1)
    model = make()
    model.layers[0].seq.interpolation = "linear"
    with pytest.raises(UserError, match="interpolation"):
        model.initial_state(1)
    with pytest.raises(UserError, match="frame_logits"):
        make(head=ClassHead()).frame_logits(torch.randn(1, 5, 1))
    with pytest.raises(UserError, match="model.rate"):
        make(rate=0.0, front=LinearFront())
