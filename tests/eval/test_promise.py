"""The promise of the whole: trained at 16 kHz, right at other rates by rescaling, and lost without it."""

import pytest
import torch
from torch.nn import functional as F

from kws_s5.config import LinearFront, ModelConfig, S5Mixer
from kws_s5.data.batch import collate
from kws_s5.eval.evaluate import evaluate
from kws_s5.eval.protocol import Condition
from kws_s5.eval.sources import from_folder
from kws_s5.model.sequence import build_model

WORDS = ("low", "middle", "high")  # 300, 600 and 1200 Hz: without rescaling every word at 8 kHz sounds like the next


@pytest.mark.slow
def test_rescaling_keeps_the_accuracy_at_other_rates_and_its_absence_loses_it(tmp_path, write_words, make_bundle):
    folder = write_words(tmp_path / "words", WORDS)
    bundle = make_bundle(folder, labels=WORDS)
    torch.manual_seed(0)
    bundle.model = build_model(
        ModelConfig(
            d_model=12,
            n_layers=1,
            n_outputs=3,
            rate=16000,
            norm_momentum=0.8,
            front=LinearFront(gain=3.0),
            mixer=S5Mixer(ssm_size=32, blocks=4),
        )
    )
    dataset = from_folder(bundle, folder).dataset
    train(bundle.model, collate([dataset[i] for i in range(len(dataset))]))
    kept = evaluate(
        bundle,
        dataset,
        [
            Condition(),
            Condition(8000, "decimate"),
            Condition(8000, "soxr"),
            Condition(11025, "soxr"),
            Condition(44100, "soxr"),
            Condition(8000, "decimate", interpolation="linear"),
            Condition(8000, "decimate", "resample_back"),
        ],
    )
    lost = evaluate(bundle, dataset, [Condition(8000, "decimate", "none"), Condition(32000, "soxr", "none")])
    assert min(result.accuracy for result in kept) >= 0.95, [(r.condition.name, r.accuracy) for r in kept]
    assert max(result.accuracy for result in lost) <= 0.4, [(r.condition.name, r.accuracy) for r in lost]


def train(model, batch, n_steps=40):
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    for _ in range(n_steps):
        optimiser.zero_grad()
        F.cross_entropy(model(batch.x, batch.lengths), batch.y).backward()
        optimiser.step()
    model.eval()
