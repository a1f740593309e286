"""Models and sounds for many tests: the shipped model, small ones of random weights, speech of the demo's examples, and
a model that listens with weights set by hand: it knows a low tone (400 Hz) and a high one (1600 Hz)."""

from pathlib import Path

import numpy as np
import pytest
import torch

import kws_s5
from kws_s5.audio.files import load_audio
from kws_s5.audio.resample import resample
from kws_s5.bundle import Bundle
from kws_s5.config import BankFront, ClassHead, KeywordData, ModelConfig, RunConfig, S5Mixer
from kws_s5.model.sequence import build_model

EXAMPLES = Path(__file__).parents[1] / "demo" / "examples"
RATE = 16000
PITCH = {"low": 400.0, "high": 1600.0}  # Hz
LABELS = ("high", "low", "_unknown_", "_silence_")


def _tone_bundle(**ssm):
    """Votes of a frame are differences of the log powers p_low, p_high of two modes; silence is about -14 in both."""
    torch.manual_seed(0)
    front = BankFront(n_modes=2, f_min=PITCH["low"], f_max=PITCH["high"])
    model = ModelConfig(
        d_model=2,
        n_layers=0,
        front=front,
        head=ClassHead(frame_logits=True, window=0.5),
        n_outputs=4,
        rate=RATE,
        mixer=S5Mixer(ssm_size=8, blocks=1, **ssm),
    )
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


@pytest.fixture(scope="session")
def shipped() -> Bundle:
    return kws_s5.load("commands12")


@pytest.fixture(scope="session")
def make_bundle():
    """(front=, head=, ssm= as keywords of their configs, or mixer=; ModelConfig's) -> a bundle of random weights."""

    def make(front=None, head=None, ssm=None, **model) -> Bundle:
        torch.manual_seed(0)
        head = {"frame_logits": True, "window": 0.2} | (head or {})
        ssm = {"ssm_size": 8, "blocks": 2, "dt_min": 0.01, "dt_max": 0.5} | (ssm or {})
        model = {"d_model": 6, "n_layers": 2, "n_outputs": 3, "rate": 16000.0, "mixer": S5Mixer(**ssm)} | model
        config = ModelConfig(**model, front=BankFront(**{"n_modes": 5} | (front or {})), head=ClassHead(**head))
        network = build_model(config).eval()
        with torch.no_grad():
            for name, value in network.state_dict().items():
                if "norm" in name:  # statistics and gains as training leaves them: no two alike
                    value.copy_(torch.rand_like(value) + 0.5)
        run = RunConfig(name="small", data=KeywordData(seconds=1.0, rate=16000.0), model=config)
        return Bundle(network, run, labels=("yes", "no", "_unknown_"), thresholds={"yes": 0.4})

    return make


@pytest.fixture(scope="session")
def speech():
    """(rate, N, seconds) -> (N, L) float32, N different pieces of the demo's examples."""
    sounds = [load_audio(EXAMPLES / f"{name}.flac") for name in ("six_commands", "yes_no", "in_noise")]

    def cut(rate: float, N: int = 1, seconds: float = 1.0) -> np.ndarray:
        rows = []
        for i in range(N):
            sound = sounds[i % 3]
            start = round((0.3 + 0.2 * (i // 3)) * sound.rate)
            piece = sound.waveform[start : start + round(seconds * sound.rate)]
            rows.append(resample(piece, sound.rate, rate))
        return np.stack(rows)

    return cut
