"""Two sets of clips as one."""

import numpy as np
import pytest
import soundfile
import torch

from kws_s5.config import KeywordData
from kws_s5.data.keywords.joined import JoinedClips
from kws_s5.data.keywords.reader import evaluation_set


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list:
    root = tmp_path_factory.mktemp("joined")
    for folder, rate, seed in (("one", 8000, 0), ("two", 16000, 100)):
        for w, word in enumerate(("a", "b")):
            (root / folder / word).mkdir(parents=True)
            for i in range(3 + w):
                sound = np.random.default_rng(seed + 10 * w + i).uniform(-0.5, 0.5, rate // 10)
                soundfile.write(root / folder / word / f"{i}.wav", sound, rate)
    config = {"cache": str(root / "cache"), "seconds": 0.05}
    return [evaluation_set(KeywordData(root=str(root / name), **config), ("a", "b"))[0] for name in ("one", "two")]


def test_examples_follow_each_other(parts: list) -> None:
    joined, single = JoinedClips(parts), [part[i] for part in parts for i in range(len(part))]
    assert len(joined) == len(single) == 14
    for i, expected in enumerate(single):
        assert torch.equal(joined[i].x, expected.x) and joined[i].rate == expected.rate
        assert int(joined[i].y) == int(expected.y) == joined.targets[i]
        assert (joined.rates[i], joined.lengths[i]) == (expected.rate, len(expected.x))
    assert joined.ids == parts[0].ids + parts[1].ids


def test_an_epoch_reaches_every_part(parts: list) -> None:
    JoinedClips(parts).set_epoch(7)
    assert [part.epoch for part in parts] == [7, 7]


def test_past_the_end_is_an_error(parts: list) -> None:
    with pytest.raises(IndexError):
        JoinedClips(parts)[14]
