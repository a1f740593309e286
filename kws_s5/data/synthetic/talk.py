"""Synthetic people who talk, in sentences without the keywords: what a spotter must keep silent at.

root/_unknown_/<speaker>_nohash_<n>.wav, some seconds each. Deterministic by seed. Needs the extra ``synth``.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from kws_s5.atomic import new_folder
from kws_s5.data.cache import made_once
from kws_s5.data.keywords.manifest import UNKNOWN
from kws_s5.data.synthetic.espeak import ACCENTS, Voice, pronounce, version
from kws_s5.data.synthetic.sentences import sentence, vocabulary
from kws_s5.data.synthetic.session import in_threads, record
from kws_s5.data.synthetic.sound import pcm16
from kws_s5.data.synthetic.voices import draw_voices
from kws_s5.errors import UserError

FORMAT = 1  # raised when the same parameters make other sound
SENTENCES = 6  # of each voice


def talk_in_cache(
    keywords: Sequence[str],
    *,
    n_voices: int,
    seed: int = 0,
    rate: int = 16000,
    accents: Sequence[str] = ACCENTS,
    cache: str = "",
    jobs: int = 2,
    progress: bool = True,
) -> Path:
    """A folder of the user's cache (or of ``cache``) with recordings of talk in _unknown_/; made once.

    Args:
        keywords: never said, nor words that sound like one.
        rate: Hz of the files.
        jobs: synthesisers at work at once; does not change the sound.

    Raises:
        UserError: the synthesiser is missing, or there are not so many voices.
    """
    if not 2000 <= rate <= 192_000:
        raise UserError(f"data.rate = {rate}: synthetic voices speak at 2,000 to 192,000 Hz")
    voices = draw_voices(n_voices, accents, seed)
    made_from = [FORMAT, version(), sorted(keywords), n_voices, seed, rate, list(accents)]

    def make(folder: Path) -> None:
        if not folder.exists():
            with new_folder(folder) as temporary:
                (temporary / UNKNOWN).mkdir()
                without = sounding_like(keywords, accents[0])
                speak = partial(_talk, temporary / UNKNOWN, seed, rate, without)
                in_threads(speak, voices, jobs=jobs, progress=progress)

    return made_once("talk", made_from, make, cache=cache)


def sounding_like(keywords: Sequence[str], accent: str = ACCENTS[0]) -> set[str]:
    """The keywords, and the words of our sentences that sound the same (no, know)."""
    words, said = vocabulary(), [re.sub("[_-]+", " ", keyword.lower()) for keyword in keywords]
    sounds = pronounce([*words, *said], accent)
    taboo = set(sounds[len(words) :])
    return set(said) | {word for word, sound in zip(words, sounds, strict=False) if sound in taboo}


def _talk(folder: Path, seed: int, rate: int, without: set[str], index: int, voice: Voice) -> None:
    """All sentences of one speaker."""
    rng = np.random.default_rng([seed, 5, index])
    texts = [sentence(rng, without=without) for _ in range(SENTENCES)]
    for k, clip in enumerate(record(texts, voice, rng, rate=rate, seconds=1.0)):
        soundfile.write(folder / f"{voice.speaker}_nohash_{k}.wav", pcm16(clip), rate, "PCM_16")
