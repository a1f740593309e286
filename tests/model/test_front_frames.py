"""The image front: sizes of the published encoder, frames on their own, the interval as a feature."""

import pytest
import torch

from kws_s5.config import FrameFront
from kws_s5.errors import UserError
from kws_s5.model.front import build_front


def make(**kwargs: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_front(FrameFront(**kwargs), 30, 0.0)


def test_it_has_the_published_size() -> None:
    convs = (25 * 12 + 12) + (12 * 9 * 12 + 12)
    assert sum(p.numel() for p in make().parameters()) == convs + (108 * 30 + 30) + (30 * 30 + 30)
    assert sum(p.numel() for p in make(append_dt=True).parameters()) == convs + (108 * 30 + 30) + (31 * 30 + 30)


def test_frames_stand_alone_and_chunks_equal_the_whole() -> None:
    front, x = make(), torch.rand(2, 5, 576)
    whole = front(x).x
    assert whole.shape == (2, 5, 30)
    torch.testing.assert_close(front(x[1:, 3:4]).x, whole[1:, 3:4], atol=1e-6, rtol=1e-5)
    parts = [front.stream(chunk, {})[0] for chunk in x.split([1, 4], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-6, rtol=1e-5)


def test_rows_of_the_image_are_consecutive() -> None:
    front, x = make(), torch.rand(1, 1, 576)
    h = front.conv1(x.reshape(1, 1, 24, 24)).relu()
    h = torch.nn.functional.max_pool2d(h, 2)
    h = torch.nn.functional.max_pool2d(front.conv2(h).relu(), 2)
    torch.testing.assert_close(front(x).x[0, 0], front.dense2(front.dense1(h.flatten()).relu()))


def test_intervals_go_to_the_layers_or_into_the_features() -> None:
    x, dt = torch.rand(2, 5, 576), torch.rand(2, 5) + 1
    assert make()(x, dt=dt).dt is dt
    front = make(append_dt=True)
    out = front(x, dt=dt)
    assert out.dt is None
    column = front.dense2.weight[:, -1]
    torch.testing.assert_close(out.x - front(x).x, (dt - 1)[..., None] * column, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [8, 13, 24, 32])
def test_other_sizes_work(size: int) -> None:
    assert make(image_size=size)(torch.rand(1, 2, size * size)).x.shape == (1, 2, 30)


def test_too_small_an_image_is_told() -> None:
    with pytest.raises(UserError, match="image_size"):
        make(image_size=4)
