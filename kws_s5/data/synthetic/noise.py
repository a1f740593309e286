"""Noises for the class _silence_ where nobody has recorded the room: hiss, rumble, hum, clicks and beeps.

root/_silence_/noise_<n>.wav, three seconds each. Deterministic by seed; needs no synthesiser.
"""

from pathlib import Path

import numpy as np
import soundfile

from kws_s5.atomic import new_folder
from kws_s5.data.cache import made_once
from kws_s5.data.keywords.manifest import SILENCE
from kws_s5.data.synthetic.sound import chirps, coloured_noise, hum, pcm16
from kws_s5.errors import UserError

FORMAT = 1  # raised when the same parameters make other sound
N_NOISES, SECONDS = 60, 3.0
LEVELS = (-70.0, -25.0)  # dB of full scale: from a quiet room to a loud street


def noise_in_cache(*, seed: int = 0, rate: int = 16000, cache: str = "") -> Path:
    """A folder of the user's cache (or of ``cache``) with noises at ``rate`` Hz in _silence_/; made once."""
    if not 2000 <= rate <= 192_000:
        raise UserError(
            f"data.rate = {rate}: noise for {SILENCE} is made at 2,000 to 192,000 Hz; record some in _background_noise_"
        )

    def make(folder: Path) -> None:
        if not folder.exists():
            with new_folder(folder) as temporary:
                (temporary / SILENCE).mkdir()
                for k in range(N_NOISES):
                    sound = _noise(np.random.default_rng([seed, 6, k]), rate)
                    soundfile.write(temporary / SILENCE / f"noise_{k}.wav", pcm16(sound), rate, "PCM_16")

    return made_once("noise", [FORMAT, seed, rate], make, cache=cache)


def _noise(rng: np.random.Generator, rate: int) -> np.ndarray:
    n = round(SECONDS * rate)
    sound = coloured_noise(n, rate, rng.uniform(0, 2), rng)
    if rng.random() < 0.3:
        sound = sound + rng.uniform(0.3, 2) * hum(n, rate, rng)
    if rng.random() < 0.3:
        sound = sound + rng.uniform(0.3, 2) * chirps(n, rate, rng)
    return (10 ** (rng.uniform(*LEVELS) / 20) * sound).astype(np.float32)
