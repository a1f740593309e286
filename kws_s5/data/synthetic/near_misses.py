"""What sounds almost like a keyword, said by synthetic people: what a spotter has to tell from it.

    root/_unknown_/<speaker>_nohash_<n>.wav. Deterministic by seed. Needs the extra ``synth``.

A near miss is a part of the keyword (its beginning, its end, a syllable of it), the keyword with other sounds in two or
three places, or with another syllable. One changed sound alone could be somebody's accent, so it is not taught.
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
from kws_s5.data.synthetic.espeak import ACCENTS, Voice, phonemes_of, version
from kws_s5.data.synthetic.session import in_threads, record
from kws_s5.data.synthetic.sound import pcm16
from kws_s5.data.synthetic.voices import draw_voices
from kws_s5.errors import UserError

FORMAT = 1  # raised when the same parameters make other sound
EACH = 10  # near misses of each voice
# eSpeak's names of sounds that all of its kinds of English have
VOWELS = ("a", "E", "I", "i:", "A:", "O:", "u:", "U", "V", "eI", "aI", "oU", "aU", "OI", "3:", "@")
CONSONANTS = (
    "p",
    "b",
    "t",
    "d",
    "k",
    "g",
    "f",
    "v",
    "T",
    "D",
    "s",
    "z",
    "S",
    "tS",
    "dZ",
    "h",
    "m",
    "n",
    "l",
    "r",
    "w",
    "j",
)
FIRST_OF_VOWELS = "aAeEiIoOuUyYV03@&"
STRESS = "',"
PART, SOUNDS = 0.35, 0.45  # shares of parts and of other sounds; the rest: another syllable


def near_misses_in_cache(
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
    """A folder of the user's cache (or of ``cache``) with EACH near misses of every voice in _unknown_/; made once.

    Args:
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
                said = phonemes_of([re.sub("[_-]+", " ", keyword.lower()) for keyword in keywords], accents[0])
                speak = partial(_speak, temporary / UNKNOWN, seed, rate, said)
                in_threads(speak, voices, jobs=jobs, progress=progress)

    return made_once("near", made_from, make, cache=cache)


def near_miss(phonemes: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Phonemes (with stress) of something that sounds almost like ``phonemes``, and never is the same."""
    while True:
        syllables, kind = split(phonemes), rng.random()
        if kind < PART and len(syllables) > 1:
            n = int(rng.integers(1, len(syllables)))
            first = int(rng.integers(len(syllables) - n + 1))
            other = [sound for syllable in syllables[first : first + n] for sound in syllable]
        elif kind < PART + SOUNDS or len(syllables) == 1:
            other = list(phonemes)
            for i in rng.permutation(len(other))[: rng.integers(2, 4)]:
                other[i] = _another(other[i], rng)
        else:
            i = int(rng.integers(len(syllables)))
            stress = next((sound[0] for sound in syllables[i] if sound[0] in STRESS), "")
            new = [str(rng.choice(CONSONANTS)), stress + str(rng.choice(VOWELS))]
            other = [sound for k, syllable in enumerate(syllables) for sound in (new if k == i else syllable)]
        if [sound.strip(STRESS) for sound in other] != [sound.strip(STRESS) for sound in phonemes]:
            return other


def split(phonemes: Sequence[str]) -> list[list[str]]:
    """Syllables: each begins with the consonant before its vowel, the first one with the word."""
    vowels = [i for i, sound in enumerate(phonemes) if _is_vowel(sound)]
    starts = [0] + [i - (not _is_vowel(phonemes[i - 1])) for i in vowels[1:]]
    return [list(phonemes[a:b]) for a, b in zip(starts, [*starts[1:], len(phonemes)], strict=True)]


def _another(sound: str, rng: np.random.Generator) -> str:
    """Some other vowel for a vowel, as stressed as it; another consonant for a consonant."""
    stress, bare = sound[: len(sound) - len(sound.lstrip(STRESS))], sound.lstrip(STRESS)
    kind = VOWELS if _is_vowel(sound) else CONSONANTS
    return stress + str(rng.choice([other for other in kind if other != bare]))


def _is_vowel(sound: str) -> bool:
    return sound.lstrip(STRESS)[:1] in FIRST_OF_VOWELS


def _speak(folder: Path, seed: int, rate: int, said: Sequence[Sequence[str]], index: int, voice: Voice) -> None:
    """All near misses of one speaker, each keyword's in turn."""
    rng = np.random.default_rng([seed, 7, index])
    texts = ["[[" + "|".join(near_miss(said[k % len(said)], rng)) + "]]" for k in range(EACH)]
    for k, clip in enumerate(record(texts, voice, rng, rate=rate, seconds=1.0, phonemes=True)):
        soundfile.write(folder / f"{voice.speaker}_nohash_{k}.wav", pcm16(clip), rate, "PCM_16")
