"""A small folder of generated words and an untrained model for them."""

import numpy as np
import pytest
import torch

from kws_s5.audio.files import save_wav
from kws_s5.bundle import Bundle
from kws_s5.config import KeywordData, LinearFront, ModelConfig, RunConfig, S5Mixer
from kws_s5.model.sequence import build_model

RATE = 16000
SECONDS = 0.1
PITCH = {"low": 300.0, "middle": 600.0, "high": 1200.0}  # Hz


def _write_words(root, words, *, rate=RATE, n=12, seconds=SECONDS):
    """n clips a word: a tone with noise, named by speaker."""
    random = np.random.default_rng(0)
    for word in words:
        for i in range(n):
            t = np.arange(round(seconds * rate)) / rate
            x = 0.3 * np.sin(2 * np.pi * PITCH[word] * t * random.uniform(0.9, 1.1)) + 0.02 * random.normal(size=len(t))
            (root / word).mkdir(parents=True, exist_ok=True)
            save_wav(root / word / f"{i:08x}_nohash_0.wav", x.astype(np.float32), rate)
    return root


@pytest.fixture
def write_words():
    """(root, words) -> root, filled with generated clips."""
    return _write_words


@pytest.fixture
def folder(tmp_path):
    """<word>/<clip> of low and high at 16 kHz."""
    return _write_words(tmp_path / "words", ("low", "high"))


@pytest.fixture
def make_bundle(tmp_path):
    """A model with fresh weights for the words of ``root``."""

    def make(root, *, labels=("high", "low"), front=LinearFront(), **ssm):  # noqa: B008 - a frozen value
        torch.manual_seed(0)
        data = KeywordData(
            root=str(root),
            seconds=SECONDS,
            cache=str(tmp_path / "cache"),
            rate=RATE,
            validation_percent=25.0,
            test_percent=25.0,
        )
        model = ModelConfig(
            d_model=6,
            n_layers=2,
            front=front,
            n_outputs=len(labels),
            rate=RATE,
            mixer=S5Mixer(ssm_size=8, blocks=1, **ssm),
        )
        config = RunConfig(name="tiny", data=data, model=model)
        return Bundle(build_model(model).eval(), config, labels=labels, note="tones")

    return make
