"""One layer: its formula in every variant, dropout shared over time, padding, chunks."""

import pytest
import torch

from kws_s5.config import S5Mixer
from kws_s5.model.layer import S5Layer

N, L, H = 2, 13, 6
ACTIVATIONS = ["full_glu", "half_glu1", "half_glu2", "gelu"]


def make(**kwargs: object) -> S5Layer:
    torch.manual_seed(1)
    bidirectional = bool(kwargs.pop("bidirectional", False))
    layer = S5Layer(H, S5Mixer(ssm_size=8, blocks=2, bidirectional=bidirectional), **kwargs)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if not name.startswith("seq"):
                p.normal_()
    return layer


def gelu(y: torch.Tensor) -> torch.Tensor:
    return 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y**3)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("ssm_norm", [True, False])
def test_layer_equals_its_formula(activation: str, prenorm: bool, ssm_norm: bool) -> None:
    layer = make(activation=activation, prenorm=prenorm, ssm_norm=ssm_norm, norm="layer").eval()
    x = torch.randn(N, L, H)
    y = layer.seq(layer.norm(x) if prenorm else x)
    if ssm_norm:
        y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True, correction=0) + 1e-6).sqrt()
        y = y * layer.ssm_norm.scale + layer.ssm_norm.bias
    h = gelu(y)
    dense = {name: h @ p.weight.T + p.bias for name, p in layer.named_children() if name.startswith("out")}
    inside = {
        "full_glu": lambda: dense["out1"] * dense["out2"].sigmoid(),
        "half_glu1": lambda: h * dense["out2"].sigmoid(),
        "half_glu2": lambda: y * dense["out2"].sigmoid(),
        "gelu": lambda: h,
    }[activation]()
    expected = x + inside if prenorm else layer.norm(x + inside)
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)


def test_each_activation_has_only_the_weights_it_needs() -> None:
    names = {a: {n for n, _ in make(activation=a).named_children() if n.startswith("out")} for a in ACTIVATIONS}
    assert names == {"full_glu": {"out1", "out2"}, "half_glu1": {"out2"}, "half_glu2": {"out2"}, "gelu": set()}


def test_new_gates_begin_lecun_normal_without_bias() -> None:
    torch.manual_seed(0)
    weight = S5Layer(400, S5Mixer(ssm_size=8, blocks=2)).out2.weight
    assert weight.var().item() * 400 == pytest.approx(1, rel=0.02)
    assert weight.abs().max().item() <= 2 / 0.8796 / 20 + 1e-6  # cut at two sigma
    assert not make(activation="gelu").seq.D.isnan().any()
    assert S5Layer(4, S5Mixer(ssm_size=8, blocks=2)).out2.bias.abs().max() == 0


def test_dropout_masks_are_shared_over_time_and_differ_between_clips() -> None:
    layer = make(activation="gelu", norm="layer", dropout=0.5).train()
    x = torch.randn(8, L, H)
    added, h = layer(x) - x, gelu(layer.seq(layer.norm(x)))  # (8, L, H)
    kept = added.abs().amax(1, keepdim=True) > 0  # (8, 1, H)
    torch.testing.assert_close(added, 2 * h * kept, atol=1e-5, rtol=1e-5)
    assert 0 < kept.float().mean() < 1 and not (kept == kept[:1]).all()
    assert torch.equal(layer.eval()(x), layer(x))


def test_gated_forms_drop_twice() -> None:
    layer = make(activation="half_glu2", norm="layer", dropout=0.5).train()
    torch.manual_seed(3)
    x = torch.randn(4, L, H)
    torch.manual_seed(4)
    out = layer(x)
    torch.manual_seed(4)
    first, second = (torch.empty(4, 1, H).bernoulli_(0.5) * 2 for _ in range(2))
    y = layer.seq(layer.norm(x))
    gate = (gelu(y) * first @ layer.out2.weight.T + layer.out2.bias).sigmoid()
    torch.testing.assert_close(out, x + y * gate * second, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_padding_changes_no_valid_step_in_training(bidirectional: bool, norm: str) -> None:
    lengths, x = torch.tensor([13, 5]), torch.randn(N, L, H)
    longer = torch.cat([x, 50 * torch.randn(N, 7, H)], 1)
    kwargs = {"bidirectional": bidirectional, "norm": norm}
    for ssm_norm in (False, True):
        layers = [make(**kwargs, ssm_norm=ssm_norm).train() for _ in range(2)]
        a, b = layers[0](x, lengths=lengths), layers[1](longer, lengths=lengths)
        torch.testing.assert_close(a[0], b[0, :13], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(a[1, :5], b[1, :5], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("prenorm", [True, False])
def test_chunks_equal_the_whole(prenorm: bool) -> None:
    layer, x = make(prenorm=prenorm).eval(), torch.randn(N, L, H)
    whole, state, parts = layer(x, step_rescale=2.0), layer.seq.initial_state(N), []
    for chunk in x.split([1, 5, 7], dim=1):
        part, state = layer.stream(chunk, state, step_rescale=2.0)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)
