"""The whole model on clips: padding, order, rates, intervals, heads, initial weights, what it refuses."""

from dataclasses import replace

import pytest
import torch

from kws_s5.config import (
    ClassHead,
    FrameFront,
    GaussianHead,
    LinearFront,
    ModelConfig,
    PairHead,
    S5Mixer,
    TokenFront,
)
from kws_s5.errors import UserError
from kws_s5.model import build_model

SSM = S5Mixer(ssm_size=8, blocks=2)
BASE = ModelConfig(d_model=6, n_layers=2, mixer=SSM, n_outputs=3, rate=100.0)
LENGTHS = torch.tensor([20, 7, 13])


def make(config: ModelConfig = BASE, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    model = build_model(replace(config, **changes))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("bias", "scale")):
                p.normal_()
    return model


def variants() -> list[ModelConfig]:
    two_way = replace(SSM, bidirectional=True)
    return [
        BASE,
        replace(BASE, mixer=two_way),
        replace(BASE, mixer=two_way, norm="layer", prenorm=False),
        replace(BASE, head=ClassHead(pooling="last")),
        replace(BASE, front=TokenFront(11), mixer=two_way),
        replace(BASE, ssm_norm=True),
    ]


def inputs(config: ModelConfig, L: int) -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randint(11, (3, L)) if isinstance(config.front, TokenFront) else torch.randn(3, L, 1)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("config", variants(), ids=["one way", "two ways", "post-norm", "last", "tokens", "ssm norm"])
def test_padding_does_not_change_logits(config: ModelConfig, training: bool) -> None:
    x = inputs(config, 20)
    longer = torch.cat([x, (7 * x)[:, :9] if x.is_floating_point() else x[:, :9]], 1)
    for row, length in enumerate(LENGTHS):
        x[row, length:] = 3  # whatever stands in the padding
    out = make(config).train(training)(x, LENGTHS)
    torch.testing.assert_close(make(config).train(training)(longer, LENGTHS), out, atol=1e-4, rtol=1e-4)
    if not training:
        alone = make(config).eval()(x[1:2, :7])
        torch.testing.assert_close(alone, out[1:2], atol=1e-5, rtol=1e-4)


def test_gradients_do_not_see_padding() -> None:
    x, model = torch.randn(3, 20, 1, requires_grad=True), make(mixer=replace(SSM, bidirectional=True)).train()
    model(x, LENGTHS).square().sum().backward()
    for row, length in enumerate(LENGTHS):
        assert x.grad[row, :length].abs().min() > 0 and x.grad[row, length:].abs().sum() == 0


def test_permuting_the_batch_permutes_the_logits() -> None:
    model, x, order = make().eval(), torch.randn(3, 20, 1), torch.tensor([2, 0, 1])
    torch.testing.assert_close(model(x[order], LENGTHS[order]), model(x, LENGTHS)[order], atol=1e-6, rtol=1e-5)


def test_full_lengths_and_equal_rates_take_the_short_way_to_the_same_logits() -> None:
    model, x = make().train(), torch.randn(3, 20, 1)
    assert model.encode(x, torch.full((3,), 20)).lengths is None
    assert model.encode(x, step_rescale=torch.tensor([2.0, 2.0, 2.0])).step_rescale == 2.0
    torch.testing.assert_close(model(x, torch.full((3,), 20)), make().train()(x))


def test_each_clip_has_its_own_rate() -> None:
    model, x, rescale = make().eval(), torch.randn(3, 20, 1), [1.0, 2.0, 0.5]
    together = model(x, step_rescale=torch.tensor(rescale, dtype=torch.float64))
    alone = torch.cat([model(x[i : i + 1], step_rescale=r) for i, r in enumerate(rescale)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_slow_sound_sampled_at_half_the_rate_gives_nearly_the_same_logits() -> None:
    model = make(mixer=replace(SSM, dt_max=0.01, bidirectional=True), norm="layer").eval()
    t = torch.arange(4000)[None, :, None]
    x = torch.sin(2 * torch.pi * t / 500) + torch.sin(2 * torch.pi * t / 870)
    full, half = model(x), model(x[:, ::2], step_rescale=2.0)
    assert (full - half).abs().max() < 0.02 * full.abs().max()
    assert (full - model(x[:, ::2])).abs().max() > 5 * (full - half).abs().max()


def test_intervals_of_two_equal_a_step_rescale_of_two() -> None:
    model, x = make().eval(), torch.randn(3, 20, 1)
    torch.testing.assert_close(model(x, dt=torch.full((3, 20), 2.0)), model(x, step_rescale=2.0), atol=1e-5, rtol=1e-5)


def test_regression_gives_mean_and_variance_at_every_step() -> None:
    ssm = S5Mixer(ssm_size=16, blocks=8, dt_min=0.01)
    config = ModelConfig(30, 4, FrameFront(), ssm, GaussianHead(), "half_glu2", "layer", False, n_outputs=2)
    mean, variance = make(config).train()(torch.rand(2, 9, 576), dt=torch.ones(2, 9))
    assert mean.shape == variance.shape == (2, 9, 2) and (variance > 0).all()


def test_pairs_give_one_row_for_two_documents() -> None:
    model = make(front=TokenFront(11), head=PairHead(), n_outputs=2).eval()
    assert model(torch.randint(11, (6, 20)), torch.tensor([20, 3, 5, 6, 7, 20])).shape == (3, 2)


def test_clip_and_frame_decisions_share_a_pass() -> None:
    config = replace(BASE, head=ClassHead(frame_logits=True, window=0.2))
    model, x = make(config).eval(), torch.randn(3, 20, 1)
    clip, frames, valid = model.clip_and_frame_logits(x, LENGTHS)
    torch.testing.assert_close(clip, model(x, LENGTHS))
    whole = model.frame_logits(x)  # causal: what comes behind a clip's end changes nothing before it
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(frames[row, :length], whole[row, :length], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(frames[torch.arange(3), valid - 1], clip, atol=1e-5, rtol=1e-5)
    assert valid.tolist() == LENGTHS.tolist() and model.clip_and_frame_logits(x)[2].tolist() == [20] * 3


def test_mixed_precision_keeps_the_residual_stream_float32() -> None:
    model, x = make().train(), torch.randn(3, 20, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = model.features(x, LENGTHS)
        logits = model(x, LENGTHS)
    assert features.x.dtype == logits.dtype == torch.float32
    torch.testing.assert_close(logits, make().train()(x, LENGTHS), atol=0.1, rtol=0.1)


def test_a_float64_model_computes_in_float64() -> None:
    config = replace(BASE, head=ClassHead(frame_logits=True))
    x = torch.randn(2, 20, 1, dtype=torch.float64)
    fine, coarse = make(config).double(), make(config)
    outputs = fine.train()(x, LENGTHS[:2]), fine.eval().frame_logits(x)
    others = coarse.train()(x.float(), LENGTHS[:2]), coarse.eval().frame_logits(x.float())
    for ours, theirs in zip(outputs, others, strict=True):
        assert ours.dtype == torch.float64
        torch.testing.assert_close(ours.float(), theirs, atol=1e-4, rtol=1e-4)


def test_models_without_layers_or_outputs() -> None:
    assert make(n_layers=0).eval()(torch.randn(3, 20, 1)).shape == (3, 3)
    with pytest.raises(UserError, match="n_outputs"):
        build_model(replace(BASE, n_outputs=0))


def test_every_weight_gets_a_gradient() -> None:
    model = make(mixer=replace(SSM, bidirectional=True), activation="full_glu", front=LinearFront(gain=2.4)).train()
    model(torch.randn(3, 20, 1), LENGTHS).square().sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
