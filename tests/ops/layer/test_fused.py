"""The fused layer equals the plain one: outputs, every gradient, dropout masks, running statistics."""

import copy

import pytest
import torch

from kws_s5 import ops
from kws_s5.config import S5Mixer
from kws_s5.model.layer import S5Layer
from kws_s5.ops.common.amx import has_amx
from kws_s5.ops.layer import program
from kws_s5.ops.layer.programs import programs

H = 21  # one vector of 16 and a rest
CASES = [(3, 50, None), (4, 17, [17, 5, 9, 1]), (2, 131, [131, 77]), (2, 40, [40, 0]), (5, 4, None), (2, 257, None)]


@pytest.fixture
def short_tiles(monkeypatch):
    monkeypatch.setattr(program, "ROWS", 40)
    programs.cache_clear()
    yield
    programs.cache_clear()


def make(bidirectional=True, activation="half_glu1", dropout=0.3, H=H, ssm_size=40, ssm_norm=False):
    torch.manual_seed(0)
    ssm = S5Mixer(ssm_size=ssm_size, blocks=2, bidirectional=bidirectional)
    layer = S5Layer(H, ssm, activation=activation, dropout=dropout, ssm_norm=ssm_norm)
    with torch.no_grad():
        for norm in norms(layer):
            norm.scale.uniform_(0.5, 1.5)
            norm.bias.normal_()
            norm.mean.normal_()
        layer.out2.bias.normal_()
    return layer


def norms(layer):
    return [norm for norm in (layer.norm, layer.ssm_norm) if norm is not None]


def double(layer):
    """The layer in float64, which is never fused, with the dropout masks that the layer itself would draw."""
    twin = copy.deepcopy(layer).double()
    drawn = layer._mask
    twin._mask = lambda h: None if (mask := drawn(h.float())) is None else mask.double()
    return twin


def results(layer, x, G, lengths=None):
    torch.manual_seed(1)  # of the dropout masks
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = layer(x, lengths=lengths)
    y.backward(G)
    buffers = [b for norm in norms(layer) for b in (norm.mean, norm.var)]
    return [y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters()), *(b.clone() for b in buffers)]


def distances(ours, exact):
    """Relative to the size of the whole tensor."""
    return [float((a.double() - b).norm() / (b.norm() + 1e-30)) for a, b in zip(ours, exact, strict=True)]


@pytest.mark.parametrize("activation", ["half_glu1", "half_glu2"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("N", "L", "lengths"), CASES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("ssm_norm", [True, False])
def test_fused_equals_plain_in_double_precision(
    activation, bidirectional, N, L, lengths, training, ssm_norm, short_tiles
):
    layer = make(bidirectional, activation, ssm_norm=ssm_norm).train(training)
    lengths = None if lengths is None else torch.tensor(lengths)
    x, G = torch.randn(N, L, H) * 2 + 0.7, torch.randn(N, L, H)
    assert layer._can_fuse(x, 1.0, None)
    exact = results(double(layer), x.double(), G.double(), lengths)
    assert max(distances(results(layer, x, G, lengths), exact)) < 1e-4


@pytest.mark.parametrize(("width", "ssm_size"), [(96, 128), (16, 8), (1, 4), (33, 68)])
@pytest.mark.parametrize("L", [1, 63, 1000])
def test_any_width_and_length(width, ssm_size, L):
    layer = make(H=width, ssm_size=ssm_size).train()
    x, G = torch.randn(3, L, width), torch.randn(3, L, width)
    exact = results(double(layer), x.double(), G.double())
    assert max(distances(results(layer, x, G), exact)) < 1e-4


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads):
    layer = make().train()
    x, G = torch.randn(3, 300, H), torch.randn(3, 300, H)
    exact, before = results(double(layer), x.double(), G.double()), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = [results(copy.deepcopy(layer), x, G) for _ in range(2)]
    finally:
        torch.set_num_threads(before)
    assert max(distances(found[0], exact)) < 1e-4
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))  # whichever thread was quicker


def test_long_clips_lose_no_digits():
    layer = make(dropout=0.0).train()
    x, G = torch.randn(1, 20000, H), torch.randn(1, 20000, H)
    exact = results(double(layer), x.double(), G.double())
    assert max(distances(results(layer, x, G), exact)) < 3e-5


def test_garbage_in_the_padding_reaches_nothing():
    layer = make().train()
    x, lengths = torch.randn(2, 30, H), torch.tensor([30, 11])
    G = torch.randn(2, 30, H)
    G[1, 11:] = 0
    poisoned = x.clone()
    poisoned[1, 11:] = float("nan")
    clean, dirty = (results(copy.deepcopy(layer), x, G, lengths) for x in (x, poisoned))
    torch.testing.assert_close(dirty[0][1, :11], clean[0][1, :11])
    torch.testing.assert_close(dirty[2], clean[2])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("width", "L"), [(H, 300), (96, 257)])
def test_half_products_stay_near_and_states_in_single_precision(training, width, L):
    layer = make(dropout=0.0, H=width).train(training)
    x, G = torch.randn(2, L, width), torch.randn(2, L, width)
    exact = results(double(layer), x.double(), G.double())

    def half(mode):
        with ops.use(mode), torch.autocast("cpu", torch.bfloat16):
            return results(copy.deepcopy(layer), x, G)

    ours, plain = half("auto"), half("reference")
    assert all(t.dtype == torch.float32 for t in ours)
    for k, (mine, theirs) in enumerate(zip(distances(ours, exact), distances(plain, exact), strict=True)):
        assert mine < (0.01 if k < 2 else 0.1)  # output and gradient of the input; of parameters
        assert mine < 1.5 * theirs + 1e-3  # no farther than torch's own bfloat16 products


@pytest.mark.parametrize(("precision", "most"), [("highest", 3e-5), ("high", 3e-5), ("medium", 0.05)])
def test_torchs_own_setting_chooses_the_products(precision, most):
    layer = make(dropout=0.0, H=96, ssm_size=64).train()
    x, G = torch.randn(3, 257, 96), torch.randn(3, 257, 96)
    exact, before = results(double(layer), x.double(), G.double()), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = distances(results(copy.deepcopy(layer), x, G), exact)
    finally:
        torch.set_float32_matmul_precision(before)
    assert max(found) < most and max(found[:2]) < most / 5
    if has_amx():
        assert (max(found[:2]) > 1e-4) == (precision == "medium")


@pytest.mark.skipif(not has_amx(), reason="the processor has no unit for bfloat16 products")
def test_half_products_really_are():
    layer = make(dropout=0.0).eval()
    x = torch.randn(2, 100, H)
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x)
    assert not torch.equal(half, layer(x))


def test_silence_is_not_slow_sound():
    """States that decay for ever would soon be numbers that processors crawl on."""
    layer = make(dropout=0.0).eval()
    with torch.no_grad():
        layer.norm.bias.zero_()
        layer.norm.mean.zero_()
        x = torch.zeros(1, 20000, H)
        x[:, 0] = 1e-30
        y = layer(x)
    tiny = torch.finfo(torch.float32).tiny
    assert y.isfinite().all() and not ((y != 0) & (y.abs() < tiny)).any()
    assert (torch.tensor(1e-39) * 0.5).item() > 0  # the rest of the process still has such numbers


def test_inference_keeps_nothing_and_gives_the_same():
    layer = make().eval()
    x = torch.randn(2, 100, H)
    with torch.inference_mode():
        y = layer(x)
    torch.testing.assert_close(y, layer(x).detach())
