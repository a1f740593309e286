"""The GRU baseline layer: norm and skip connection as in S5Layer, causal, of about the S5 model's size."""

from dataclasses import replace

import pytest
import torch

from kws_s5.config import ModelConfig
from kws_s5.errors import UserError
from kws_s5.model import build_model
from kws_s5.model.layer_gru import GRULayer
from kws_s5.recipes.pendulum import pendulum, pendulum_gru


def size(run) -> int:
    return sum(p.numel() for p in build_model(replace(run.model, n_outputs=2)).parameters())


def test_skip_connection_and_norm_stand_where_s5_has_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 7, 5)
    post, pre = GRULayer(5, norm="layer", prenorm=False), GRULayer(5, norm="layer", prenorm=True)
    torch.testing.assert_close(post(x), post.norm(x + post.seq(x)[0]))
    torch.testing.assert_close(pre(x), x + pre.seq(pre.norm(x))[0])


def test_padding_changes_no_valid_step() -> None:
    torch.manual_seed(0)
    layer, x = GRULayer(5, norm="batch"), torch.randn(2, 7, 5)
    lengths = torch.tensor([4, 7])
    other = x.clone()
    other[0, 4:] = 99.0
    torch.testing.assert_close(layer(x, lengths=lengths)[0, :4], layer(other, lengths=lengths)[0, :4])


def test_the_baseline_has_the_size_of_the_s5_model() -> None:
    assert 1.0 <= size(pendulum_gru()) / size(pendulum()) < 1.3


def test_it_does_not_stream() -> None:
    model = build_model(ModelConfig(d_model=4, n_layers=1, n_outputs=2, cell="gru"))
    with pytest.raises(UserError, match="whole clips only"):
        model.eval().initial_state(1)
