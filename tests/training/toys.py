"""Small data in memory and a small model, for tests of the training."""

import csv
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch.utils.data import Dataset

from kws_s5.config import (
    BankFront,
    ClassHead,
    LinearFront,
    ModelConfig,
    OptimConfig,
    RunConfig,
    S5Mixer,
    TrainingConfig,
)
from kws_s5.data.batch import Example
from kws_s5.data.splits import Splits

RATE = 500.0
LABELS = ("low", "middle", "high")


class Tones(Dataset):
    """n noisy sines of three frequencies; a random shift of each clip comes from the epoch."""

    def __init__(self, n: int, *, seed: int, moving: bool = False) -> None:
        self.n, self.seed, self.moving, self.epoch = n, seed, moving, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Example:
        epoch = self.epoch if self.moving else 0
        random = torch.Generator().manual_seed((self.seed * 1000 + index) * 1000 + epoch)
        k = index % 3
        L = 60 + index % 5
        t = torch.arange(L) / RATE + torch.rand(1, generator=random)
        x = 0.5 * torch.sin(2 * torch.pi * (20.0, 60.0, 150.0)[k] * t) + 0.1 * torch.randn(L, generator=random)
        return Example(x[:, None], torch.tensor(k), RATE)


def tones() -> Splits:
    return Splits(
        Tones(30, seed=1, moving=True),
        Tones(12, seed=2),
        Tones(15, seed=3),
        LABELS,
        3,
        report={"source": "sines"},
        note="sines made for a test",
    )


class Breaks(Tones):
    """Calls ``accident`` when the n-th training clip of this process is read."""

    def __init__(self, at: int, accident: Callable[[], None]) -> None:
        super().__init__(30, seed=1, moving=True)
        self.targets = [i % 3 for i in range(30)]  # not counted among the clips that are read
        self.left, self.accident = at, accident

    def __getitem__(self, index: int) -> Example:
        self.left -= 1
        if self.left == 0:
            self.accident()
        return super().__getitem__(index)


def breaking(at: int, accident: Callable[[], None]) -> Splits:
    return replace(tones(), train=Breaks(at, accident))


def fail() -> None:
    raise RuntimeError("power cut")


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def toy_config(**training: object) -> RunConfig:
    model = ModelConfig(
        d_model=8, n_layers=1, front=LinearFront(gain=2.0), mixer=S5Mixer(ssm_size=8, blocks=2), dropout=0.2, rate=RATE
    )
    settings = {"epochs": 3, "batch_size": 7, "progress": False, "accelerator": "cpu", "save_minutes": 0.0, **training}
    return RunConfig("toy", model=model, optim=OptimConfig(lr=0.02, ssm_lr=0.01), training=TrainingConfig(**settings))


def bank_model() -> ModelConfig:
    front = BankFront(n_modes=4, f_min=20, f_max=200)
    return replace(toy_config().model, front=front, head=ClassHead(frame_logits=True))


def log(out: Path) -> list[dict[str, float]]:
    return [{k: float(v) for k, v in row.items()} for row in csv.DictReader((out / "log.csv").open())]
