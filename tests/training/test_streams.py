"""Training on made-up streams: frame decisions learn to be silent in talk, and a run that stopped ends the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import bank_model, toy_config

from kws_s5.bundle import load
from kws_s5.config import ClassHead, RunConfig
from kws_s5.data.batch import Example
from kws_s5.data.keywords.segments import Segments, Streams, Talk, Word
from kws_s5.data.splits import Splits
from kws_s5.model import build_model
from kws_s5.training.run import train
from kws_s5.training.streams import StreamTraining, faster, peaks

RATE, LABELS = 500.0, ("low", "high", "_unknown_")
WORDS = ((0, 60.0), (1, 150.0))


def tone(hz: float, seconds: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    t = np.arange(round(seconds * RATE)) / RATE + random.random()
    return (0.5 * np.sin(2 * np.pi * hz * t) + 0.02 * random.normal(size=len(t))).astype(np.float32)


def word(k: int, hz: float, seed: int) -> Word:
    x = np.zeros(500, np.float32)
    x[150:350] = tone(hz, 0.4, seed)
    return Word(x, k, 0.3, 0.7)


def talk(seed: int) -> Talk:
    """People who say the words without a pause between: neither is one, in this language."""
    parts = [tone(hz, 0.4, seed + i) for i in range(5) for _, hz in WORDS]
    return Talk((np.concatenate(parts) * 32000).astype(np.int16))


def segments() -> Segments:
    words = [word(k, hz, seed) for seed in range(8) for k, hz in WORDS]
    return Segments(words, [talk(100), talk(200)], seconds=3.0, rate=RATE, background=[2])


class Clips(torch.utils.data.Dataset):
    """The words, by themselves, and pieces of the talk."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Example:
        k = i % 3
        x = word(k, WORDS[k][1], self.seed + i).waveform if k < 2 else talk(self.seed + i).samples[:500] / 32768.0
        return Example(torch.as_tensor(x, dtype=torch.float32)[:, None], torch.tensor(k), RATE)


def splits() -> Splits:
    return Splits(Clips(24, 0), Clips(9, 50), Clips(9, 90), LABELS, 3, segments=segments())


def config(out: Path, **training: object) -> RunConfig:
    head = ClassHead(frame_logits=True, frame_decoder=True, window=0.1)
    settings = {"batch_size": 6, "stream_batch": 4, "stream_seconds": 3.0, "choose_by": "last", **training}
    toy = toy_config(out=str(out), **settings)
    return replace(toy, model=replace(bank_model(), head=head, dropout=0.0, d_model=16, n_layers=2))


def alarms(model: torch.nn.Module) -> tuple[float, float]:
    """Highest mean probability of a keyword over 80 ms: of the right one around new words, of any in new talk."""

    @torch.no_grad()
    def best(x: np.ndarray, k: list[int]) -> float:
        p = model.frame_logits(torch.as_tensor(x, dtype=torch.float32)[None, :, None]).softmax(-1)[0, :, k].sum(-1)
        return float(torch.nn.functional.avg_pool1d(p[None], 8, 1).max())

    quiet = np.zeros(400, np.float32)
    said = [best(np.concatenate([quiet, word(k, hz, 999).waveform, quiet]), [k]) for k, hz in WORDS]
    return min(said), best(talk(777).samples / 32768.0, [0, 1])


@pytest.mark.slow
def test_a_model_learns_to_hear_words_between_pauses_and_to_be_silent_in_talk(tmp_path: Path) -> None:
    out = train(config(tmp_path / "run", epochs=100, listen_every=25), splits=splits())
    said, spoken = alarms(load(out).model)
    assert said > 0.7
    assert spoken < 0.5 * said


def test_a_stopped_run_ends_with_the_same_weights_hard_places_and_all(tmp_path: Path) -> None:
    settings = {"epochs": 4, "save_steps": 1, "listen_every": 1, "fit_unknown": True}
    whole = load(train(config(tmp_path / "whole", **settings), splits=splits())).model.state_dict()
    for at in (2, 5, 8):  # steps before a cut; an epoch has four
        broken = splits()
        broken.train = Cut(24, 0, at)
        run = config(tmp_path / f"cut{at}", **settings)
        with pytest.raises(RuntimeError, match="power cut"):
            train(run, splits=broken)
        resumed = load(train(run, splits=splits(), resume=True)).model.state_dict()
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)


class Cut(Clips):
    """Breaks down when batch ``at`` is read."""

    def __init__(self, n: int, seed: int, at: int) -> None:
        super().__init__(n, seed)
        self.targets, self.left = [i % 3 for i in range(n)], 6 * at

    def __getitem__(self, i: int) -> Example:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("power cut")
        return super().__getitem__(i)


def test_listening_finds_what_fires_but_not_keywords_that_are_said() -> None:
    given = segments()
    streams = StreamTraining(given, config(Path("unused")), LABELS, ())
    torch.manual_seed(0)
    model = build_model(replace(config(Path("unused")).model, n_outputs=3, rate=RATE))
    with torch.no_grad():
        model.head.frame_decoder.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))  # hears "low" all the time
    streams.listen(model)
    assert {k for k, _ in given.hard} == {0, 1}
    assert model.training
    given.talk = tuple(Talk(t.samples, ((0.0, 10.0),)) for t in given.talk)
    streams.listen(model)
    assert given.hard == []


def test_words_move_with_the_sound_that_is_played_faster() -> None:
    x = torch.zeros(2, 3000)
    x[:, 500:540] = 1.0
    streams = faster(Streams(x, [(0, 0, 0.5, 0.54), (1, 1, 0.5, 0.54)], [(1, 0.5, 0.54)]), np.array([0.9, 1.1]), 1000.0)
    for row, (_, _, start, end) in enumerate(streams.words):
        loud = torch.nonzero(streams.x[row] > 0.5)[[0, -1], 0] / 1000.0
        torch.testing.assert_close(loud, torch.tensor([start, end]), atol=0.003, rtol=0)
    assert streams.unsure[0][1:] == streams.words[1][2:]


def test_peaks_stand_apart() -> None:
    scores = np.zeros(300)
    scores[[50, 60, 200]] = 0.4, 0.9, 0.2
    assert peaks(scores, 100.0) == [0.61, 2.01]
