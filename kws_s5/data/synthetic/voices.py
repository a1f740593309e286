"""Who speaks in a synthetic set: voices drawn from a seed, and which of them are held out.

Held-out speakers have timbres that no training speaker has, whatever their accent.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kws_s5.data.synthetic.espeak import VARIANTS, Voice
from kws_s5.errors import UserError

MIN_VOICES = 3


def draw_voices(n_voices: int, accents: Sequence[str], seed: int) -> list[Voice]:
    """``n_voices`` different speakers; timbres are used up before one comes again with another accent."""
    limit = len(VARIANTS) * len(accents)
    if not MIN_VOICES <= n_voices <= limit:
        raise UserError(
            f"{n_voices} synthetic voices: choose {MIN_VOICES} to {limit} (one for each split at least; "
            f"{len(VARIANTS)} timbres x {len(accents)} accents at most)"
        )
    rng = np.random.default_rng([seed, 1])
    timbres = rng.permutation(len(VARIANTS))
    first_accents = rng.integers(len(accents), size=len(VARIANTS))
    voices = []
    for i in range(n_voices):
        turn, rank = divmod(i, len(VARIANTS))
        accent = accents[(first_accents[rank] + turn) % len(accents)]
        voices.append(
            Voice(
                accent,
                VARIANTS[timbres[rank]],
                int(rng.integers(35, 66)),
                int(rng.integers(120, 191)),
                int(rng.integers(30, 71)),
            )
        )
    return voices


def draw_manner(voice: Voice, rng: np.random.Generator) -> Voice:
    """The same speaker saying something once more: a little higher or lower, faster or slower."""
    return replace(
        voice,
        pitch=int(np.clip(voice.pitch + rng.integers(-8, 9), 0, 99)),
        speed=int(np.clip(voice.speed * rng.uniform(0.85, 1.2), 80, 450)),
    )


def held_out(voices: Sequence[Voice], validation_percent: float, test_percent: float) -> tuple[set[str], set[str]]:
    """Speakers of the validation and of the test split: whole timbres, at least one each, one left for training."""
    timbres = list(dict.fromkeys(voice.variant for voice in voices))
    n_validation = min(max(1, round(len(timbres) * validation_percent / 100)), len(timbres) - 2)
    n_test = min(max(1, round(len(timbres) * test_percent / 100)), len(timbres) - 1 - n_validation)
    validation = set(timbres[:n_validation])
    test = set(timbres[n_validation : n_validation + n_test])
    return ({v.speaker for v in voices if v.variant in validation}, {v.speaker for v in voices if v.variant in test})
