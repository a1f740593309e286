"""The fused layer equals the plain one: outputs, every gradient, dropout masks, running statistics."""

import pytest
import torch

from kws_s5.config import SSMConfig
from kws_s5.model import tiles
from kws_s5.model.layer import S5Layer
from kws_s5.model.layer_fused import Options, Weights, fused_layer

H = 21  # one vector of 16 and a rest


def make(bidirectional=True, activation="half_glu1", dtype=torch.float64, dropout=0.3):
    torch.manual_seed(0)
    ssm = SSMConfig(ssm_size=40, blocks=2, bidirectional=bidirectional)
    layer = S5Layer(H, ssm, activation=activation, dropout=dropout).to(dtype)
    with torch.no_grad():
        layer.norm.scale.uniform_(0.5, 1.5)
        for tensor in (layer.norm.bias, layer.norm.mean, layer.out2.bias):
            tensor.normal_()
    return layer


def fused(layer, x, lengths=None):
    """As S5Layer does it, in any dtype."""
    norm, seq = layer.norm, layer.seq
    weights = Weights(norm.scale, norm.bias, *seq.system(), seq._readout(), seq.D, layer.out2.weight, layer.out2.bias)
    masks = layer._mask(x), layer._mask(x)
    statistics = None if layer.training else (norm.mean, norm.var)
    return fused_layer(x, weights, Options(lengths, masks, layer.activation == "half_glu2", False, statistics))[0]


def results(run, layer, x, G):
    torch.manual_seed(1)  # of the dropout masks
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = run(x)
    y.backward(G)
    return [y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]


@pytest.mark.parametrize("activation", ["half_glu1", "half_glu2"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("N", "L", "lengths"), [
    (3, 50, None), (4, 17, [17, 5, 9, 1]), (2, 131, [131, 77]), (1, 2, None), (2, 257, None)])
@pytest.mark.parametrize("training", [True, False])
def test_fused_equals_plain_in_double_precision(activation, bidirectional, N, L, lengths, training, monkeypatch):
    monkeypatch.setattr(tiles, "ROWS", 40)
    layer = make(bidirectional, activation).train(training)
    lengths = None if lengths is None else torch.tensor(lengths)
    x, G = torch.randn(N, L, H, dtype=torch.float64) * 2 + 0.7, torch.randn(N, L, H, dtype=torch.float64)
    plain = results(lambda x: layer(x, lengths=lengths), layer, x, G)
    for a, b in zip(plain, results(lambda x: fused(layer, x, lengths), layer, x, G), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9 * float(a.abs().max()))


@pytest.mark.parametrize("L", [1, 63, 1000, 5000])
def test_layer_chooses_the_fused_form_and_changes_nothing(L):
    layer = make(dtype=torch.float32).train()
    x, G = torch.randn(2, L, H), torch.randn(2, L, H)
    assert layer._can_fuse(x, 1.0, None)
    seen = []
    for layer.fuse in (False, True):
        with torch.no_grad():
            layer.norm.mean.zero_()
            layer.norm.var.fill_(1.0)
        seen.append([*results(layer, layer, x, G), layer.norm.mean.clone(), layer.norm.var.clone()])
    for a, b in zip(*seen, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-4 * float(a.abs().max()))


def test_garbage_in_the_padding_reaches_nothing():
    layer = make(dtype=torch.float32).train()
    x, lengths = torch.randn(2, 30, H), torch.tensor([30, 11])
    G = torch.randn(2, 30, H)
    G[1, 11:] = 0
    poisoned = x.clone()
    poisoned[1, 11:] = float("nan")
    clean, dirty = (results(lambda x: layer(x, lengths=lengths), layer, x, G) for x in (x, poisoned))
    torch.testing.assert_close(dirty[0][1, :11], clean[0][1, :11])
    torch.testing.assert_close(dirty[2], clean[2])


@pytest.mark.parametrize("training", [True, False])
def test_half_products_stay_near_and_states_in_single_precision(training):
    layer = make(dtype=torch.float32, dropout=0.0).train(training)
    x, G = torch.randn(2, 300, H), torch.randn(2, 300, H)
    exact = results(layer, layer, x, G)

    def half(x):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    for a, b in zip(exact, results(half, layer, x, G), strict=True):
        assert b.dtype == torch.float32
        assert float((a - b).norm() / a.norm()) < 0.02


def test_inference_keeps_nothing_and_gives_the_same():
    layer = make(dtype=torch.float32).eval()
    x = torch.randn(2, 100, H)
    with torch.inference_mode():
        y = layer(x)
    torch.testing.assert_close(y, layer(x).detach())
