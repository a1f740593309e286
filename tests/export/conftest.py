"""Models to export: the shipped one, and small ones of every kind; speech from the demo's examples."""

from pathlib import Path

import numpy as np
import pytest
import torch

import kws_s5
from kws_s5.audio.files import load_audio
from kws_s5.audio.resample import resample
from kws_s5.bundle import Bundle
from kws_s5.config import BankFront, ClassHead, KeywordData, ModelConfig, RunConfig, SSMConfig
from kws_s5.model.sequence import build_model

EXAMPLES = Path(__file__).parents[2] / "demo" / "examples"


@pytest.fixture(scope="session")
def shipped() -> Bundle:
    return kws_s5.load("commands12")


@pytest.fixture(scope="session")
def make_bundle():
    """(front=, head=, ssm= as keywords of their configs, and those of ModelConfig) -> a bundle of random weights."""

    def make(front=None, head=None, ssm=None, **model) -> Bundle:
        torch.manual_seed(0)
        head = {"frame_logits": True, "window": 0.2} | (head or {})
        ssm = {"ssm_size": 8, "blocks": 2, "dt_min": 0.01, "dt_max": 0.5} | (ssm or {})
        config = ModelConfig(**{"d_model": 6, "n_layers": 2, "n_outputs": 3, "rate": 16000.0} | model,
                             front=BankFront(**{"n_modes": 5} | (front or {})), head=ClassHead(**head),
                             ssm=SSMConfig(**ssm))
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
