"""The convolutional baseline: its layer as published, causal, padding without effect."""

from dataclasses import replace

import numpy as np
import torch

from kws_s5.config import ConvMixer
from kws_s5.model import build_model
from kws_s5.model.layer import S5Layer
from kws_s5.recipes.kws import kws12, kws12_cnn

KERNEL = 13


def make(H: int, **options: object) -> S5Layer:
    return S5Layer(H, ConvMixer(), activation="relu", **options)


def test_each_step_is_the_stated_formula_on_the_last_kernel_steps() -> None:
    torch.manual_seed(0)
    layer = make(3, norm="layer").eval()
    x = torch.randn(1, 20, 3)
    padded = np.concatenate([np.zeros((KERNEL - 1, 3)), x[0].numpy()])
    taps = layer.seq.depthwise.weight.detach().numpy()[:, 0]  # (H, KERNEL)
    filtered = np.stack([(padded[t : t + KERNEL] * taps.T).sum(0) for t in range(20)])
    y = layer.seq.pointwise(torch.tensor(filtered, dtype=torch.float32))
    torch.testing.assert_close(layer(x)[0], x[0] + layer.norm(y[None])[0].relu())


def test_no_step_depends_on_a_later_one() -> None:
    torch.manual_seed(0)
    layer, x = make(5).eval(), torch.randn(2, 30, 5)
    other = x.clone()
    other[:, 17:] += 1.0
    torch.testing.assert_close(layer(x)[:, :17], layer(other)[:, :17])


def test_padding_changes_no_valid_step() -> None:
    torch.manual_seed(0)
    layer, x = make(5), torch.randn(2, 30, 5)
    lengths = torch.tensor([11, 30])
    other = x.clone()
    other[0, 11:] = 99.0
    torch.testing.assert_close(layer(x, lengths=lengths)[0, :11], layer(other, lengths=lengths)[0, :11])


def test_the_baseline_has_about_the_size_of_the_s5_model() -> None:
    def size(run) -> int:
        return sum(p.numel() for p in build_model(replace(run.model, n_outputs=12, rate=16000.0)).parameters())

    assert 0.8 < size(kws12_cnn()) / size(kws12()) < 1.1
