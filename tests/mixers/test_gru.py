"""The GRU baseline: its layer as published, causal, of about the S5 model's size."""

from dataclasses import replace

import torch

from kws_s5.config import GRUMixer
from kws_s5.model import build_model
from kws_s5.model.layer import S5Layer
from kws_s5.recipes.pendulum import pendulum, pendulum_gru


def make(**options: object) -> S5Layer:
    return S5Layer(5, GRUMixer(), activation="none", **options)


def size(run) -> int:
    return sum(p.numel() for p in build_model(replace(run.model, n_outputs=2)).parameters())


def test_skip_connection_and_norm_stand_where_s5_has_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 7, 5)
    post, pre = make(norm="layer", prenorm=False), make(norm="layer", prenorm=True)
    torch.testing.assert_close(post(x), post.norm(x + torch.nn.GRU.forward(post.seq, x)[0]))
    torch.testing.assert_close(pre(x), x + torch.nn.GRU.forward(pre.seq, pre.norm(x))[0])


def test_padding_changes_no_valid_step() -> None:
    torch.manual_seed(0)
    layer, x = make(norm="batch"), torch.randn(2, 7, 5)
    lengths = torch.tensor([4, 7])
    other = x.clone()
    other[0, 4:] = 99.0
    torch.testing.assert_close(layer(x, lengths=lengths)[0, :4], layer(other, lengths=lengths)[0, :4])


def test_the_baseline_has_the_size_of_the_s5_model() -> None:
    assert 1.0 <= size(pendulum_gru()) / size(pendulum()) < 1.3
