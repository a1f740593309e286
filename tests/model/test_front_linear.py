"""Dense and token fronts equal what the paper's encoder computes."""

import pytest
import torch
import torch.nn.functional as F

from kws_s5.config import LinearFront, TokenFront
from kws_s5.errors import UserError
from kws_s5.model.front import build_front


def test_linear_front_is_a_dense_layer_on_gain_times_input() -> None:
    front = build_front(LinearFront(n_inputs=3, gain=2.4), 5, 16000.0)
    x, lengths, dt = torch.randn(2, 7, 3), torch.tensor([7, 4]), torch.rand(2, 7)
    out = front(x, lengths, 2.0, dt=dt)
    torch.testing.assert_close(out.x, 2.4 * x @ front.encoder.weight.T + front.encoder.bias)
    assert out.lengths is lengths and out.step_rescale == 2.0 and out.dt is dt
    assert front.frame_rate == 16000.0 and not front.fixed_frame_rate


def test_token_front_is_one_hot_through_a_dense_layer() -> None:
    torch.manual_seed(0)
    front = build_front(TokenFront(vocab_size=9), 5, 0.0)
    with torch.no_grad():
        front.bias.normal_()
    tokens = torch.randint(9, (2, 7))
    expected = F.one_hot(tokens, 9).float() @ front.weight + front.bias
    torch.testing.assert_close(front(tokens).x, expected)
    front(tokens).x.sum().backward()
    torch.testing.assert_close(front.bias.grad, torch.full((5,), 14.0))


def test_token_weights_begin_lecun_normal_in_the_vocabulary() -> None:
    torch.manual_seed(0)
    front = build_front(TokenFront(vocab_size=100), 300, 0.0)
    assert front.weight.var().item() * 100 == pytest.approx(1, rel=0.03)


def test_chunks_equal_the_whole() -> None:
    front, x = build_front(LinearFront(), 5, 16000.0), torch.randn(2, 7, 1)
    state = front.initial_state(2)
    parts = [front.stream(chunk, state)[0] for chunk in x.split([3, 4], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), front(x).x)


def test_an_open_vocabulary_is_told() -> None:
    with pytest.raises(UserError, match="vocab_size"):
        build_front(TokenFront(), 5, 0.0)
