"""A model that listens, with weights set by hand: it knows a low tone (400 Hz) and a high one (1600 Hz)."""

import numpy as np
import pytest
import torch

from kws_s5.bundle import Bundle
from kws_s5.config import BankFront, ClassHead, KeywordData, ModelConfig, RunConfig, SSMConfig
from kws_s5.model.sequence import build_model

RATE = 16000
PITCH = {"low": 400.0, "high": 1600.0}  # Hz
LABELS = ("high", "low", "_unknown_", "_silence_")


def _tone_bundle(**ssm):
    """Votes of a frame are differences of the log powers p_low, p_high of two modes; silence is about -14 in both."""
    torch.manual_seed(0)
    front = BankFront(n_modes=2, f_min=PITCH["low"], f_max=PITCH["high"])
    model = ModelConfig(d_model=2, n_layers=0, front=front, head=ClassHead(frame_logits=True, window=0.5), n_outputs=4,
                        rate=RATE, ssm=SSMConfig(ssm_size=8, blocks=1, **ssm))
    network = build_model(model).eval()
    with torch.no_grad():
        network.front.encoder.weight.copy_(torch.eye(2))
        network.front.encoder.bias.zero_()
        network.head.decoder.weight.copy_(torch.tensor([[-1.0, 1.0], [1.0, -1.0], [0.0, 0.0], [-0.5, -0.5]]))
        network.head.decoder.bias.copy_(torch.tensor([0.0, 0.0, 1.5, -10.0]))
    config = RunConfig(name="tones", data=KeywordData(seconds=0.6, rate=RATE), model=model)
    return Bundle(network, config, labels=LABELS, note="tones")


def _tone_stream(words, *, seconds, rate=RATE, length=0.4, noise=1e-4, seed=0):
    """(L,) float32 with a tone for every (word, start in seconds), over faint noise."""
    n = round(seconds * rate)
    x = noise * np.random.default_rng(seed).standard_normal(n)
    t = np.arange(round(length * rate)) / rate
    shape = np.minimum(1.0, np.minimum(t, t[::-1]) / 0.02)
    for word, start in words:
        i = round(start * rate)
        x[i : i + len(t)] += 0.3 * shape * np.sin(2 * np.pi * PITCH[word] * t)
    return x.astype(np.float32)


@pytest.fixture(scope="session")
def make_tone_bundle():
    """() -> a fresh copy of the model, for fixtures that live longer than a test."""
    return _tone_bundle


@pytest.fixture(scope="session")
def make_tone_stream():
    """As tone_stream, for fixtures that live longer than a test."""
    return _tone_stream


@pytest.fixture
def tone_bundle():
    """A fresh copy of the model."""
    return _tone_bundle()


@pytest.fixture
def tone_stream():
    """(words with their starts, seconds=, rate=) -> waveform."""
    return _tone_stream
