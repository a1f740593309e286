"""Words spoken by a synthesiser, in a folder laid out like Speech Commands: data for a first run without a download.

    root/<word>/<speaker>_nohash_<take>.wav   root/_background_noise_/*.wav   root/validation_list.txt, testing_list.txt

Deterministic by seed; speakers of the three splits differ. Needs the extra ``synth`` (eSpeak NG, GPL).
Synthetic speech is easier than real speech: figures on it show that training works, not how well it will do.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from kws_s5.atomic import new_folder, write_json, write_text
from kws_s5.audio.resample import resample
from kws_s5.data.cache import made_once
from kws_s5.data.keywords.manifest import BACKGROUND
from kws_s5.data.keywords.speech_commands import COMMANDS_10
from kws_s5.data.synthetic.espeak import ACCENTS, Utterance, Voice, speak_all, version
from kws_s5.data.synthetic.session import in_threads, record
from kws_s5.data.synthetic.sound import babble, chirps, coloured_noise, hum, pcm16
from kws_s5.data.synthetic.voices import draw_voices, held_out
from kws_s5.errors import UserError

FILLERS = ("bed", "bird", "cat", "dog", "happy", "house", "marvin", "sheila", "tree", "wow")
DEFAULT_WORDS = COMMANDS_10 + FILLERS
RECIPE = "synthetic.json"  # what the folder was made from; its presence says that the folder is ours
FORMAT = 1  # raised when the same parameters make other sound
NOISE_SECONDS = 20.0
NOISE_LEVEL = 10 ** (-32 / 20)  # rms of the files in _background_noise_
SMALL_TALK = (
    "the weather was mild and we walked along the river",
    "dinner is ready in about twenty minutes",
    "could you pass me those papers please",
    "they have been talking for more than an hour",
    "the train to the city was late again this morning",
    "remember to water the plants in the kitchen",
)


@dataclass(frozen=True)
class SyntheticSet:
    """All that determines the sound of a synthetic folder."""

    words: tuple[str, ...] = DEFAULT_WORDS
    n_voices: int = 40
    n_takes: int = 2
    seed: int = 0
    noise: bool = True
    rate: int = 16000
    seconds: float = 1.0
    accents: tuple[str, ...] = ACCENTS
    validation_percent: float = 10.0
    testing_percent: float = 20.0

    def __post_init__(self) -> None:
        bad = [word for word in self.words if not _can_be_folder(word)]
        if bad or not self.words or len(set(self.words)) < len(self.words):
            raise UserError(f"synthetic words {', '.join(bad or self.words)!r}: give different words, letters only")
        if self.n_takes < 1 or not 2000 <= self.rate <= 192000 or not 0 < self.seconds <= 60:
            raise UserError(
                f"synthetic set of {self.n_takes} takes, {self.rate} Hz, {self.seconds} s: "
                "choose 1 take or more, 2,000 to 192,000 Hz, up to 60 s"
            )


def _can_be_folder(word: str) -> bool:
    forbidden = set('/\\:*?"<>|') & set(word)
    return word.strip(" .") == word != "" and word[0] != "_" and word.isprintable() and not forbidden


def synthesise(
    folder: str | Path,
    *,
    words: Sequence[str] = DEFAULT_WORDS,
    n_voices: int = 40,
    n_takes: int = 2,
    seed: int = 0,
    noise: bool = True,
    rate: int = 16000,
    seconds: float = 1.0,
    accents: Sequence[str] = ACCENTS,
    validation_percent: float = 10.0,
    testing_percent: float = 20.0,
    jobs: int = 2,
    progress: bool = True,
) -> Path:
    """Writes a folder of spoken words and returns it; one that is there already, made the same way, is kept as it is.

    Args:
        folder: appears whole or not at all; must be new, empty, or the same set.
        n_voices: speakers (3 or more); 10 % of them are for validation, 20 % for the test.
        n_takes: times that each speaker says each word.
        noise: put speakers into rooms with noise; without, clips are clean.
        rate: Hz of the files. seconds: length of a clip; longer words make longer clips.
        accents: eSpeak NG languages, for instance ("de",).
        jobs: synthesisers at work at once; does not change the sound.

    Raises:
        UserError: the package is missing, a parameter makes no sense, or the folder holds something else.
    """
    wanted = SyntheticSet(
        tuple(words), n_voices, n_takes, seed, noise, rate, seconds, tuple(accents), validation_percent, testing_percent
    )
    folder = Path(folder)
    recipe = json.loads(json.dumps(vars(wanted) | {"format": FORMAT, "espeakng_loader": version()}))
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        with suppress(FileExistsError), new_folder(folder) as temporary:  # another process may be first
            _fill(temporary, wanted, jobs, progress)
            write_json(temporary / RECIPE, recipe)
    there = _recipe_of(folder)
    if there != recipe:
        other = ", ".join(key for key in recipe if there is not None and there.get(key) != recipe[key])
        what = f"a synthetic set made with other {other}" if there else "something else"
        raise UserError(f"{folder} holds {what}: choose another folder or remove it")
    return folder


def synthesise_in_cache(cache: str = "", **parameters) -> Path:
    """The same set in a folder of the user's cache (or of ``cache``) named by its parameters; made once.

    Several processes may call at once: one works, the others wait.
    """
    made_from = {k: v for k, v in parameters.items() if k not in ("jobs", "progress")}
    return made_once("synthetic", [FORMAT, version(), made_from], partial(synthesise, **parameters), cache=cache)


def _recipe_of(folder: Path) -> dict | None:
    try:
        recipe = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return recipe if isinstance(recipe, dict) else None


def _fill(folder: Path, wanted: SyntheticSet, jobs: int, progress: bool) -> None:
    voices = draw_voices(wanted.n_voices, wanted.accents, wanted.seed)
    validation, test = held_out(voices, wanted.validation_percent, wanted.testing_percent)
    for word in wanted.words:
        (folder / word).mkdir()
    in_threads(partial(_write_session, folder, wanted), voices, jobs=jobs, progress=progress)
    for name, speakers in (("validation_list.txt", validation), ("testing_list.txt", test)):
        ids = [f"{w}/{s}_nohash_{k}.wav" for w in wanted.words for s in sorted(speakers) for k in range(wanted.n_takes)]
        write_text(folder / name, "\n".join(ids) + "\n")
    talkers = [v for v in voices if v.speaker not in validation | test][:6]
    _write_noises(folder / BACKGROUND, wanted, talkers)


def _write_session(folder: Path, wanted: SyntheticSet, index: int, voice: Voice) -> None:
    """All that one speaker says, recorded in one room with one microphone."""
    rng = np.random.default_rng([wanted.seed, 2, index])
    spoken = [(word, take) for take in range(wanted.n_takes) for word in wanted.words]
    clips = record(
        [word for word, _ in spoken], voice, rng, rate=wanted.rate, seconds=wanted.seconds, noise=wanted.noise
    )
    for (word, take), clip in zip(spoken, clips, strict=True):
        soundfile.write(folder / word / f"{voice.speaker}_nohash_{take}.wav", pcm16(clip), wanted.rate, "PCM_16")


def _write_noises(folder: Path, wanted: SyntheticSet, talkers: Sequence[Voice]) -> None:
    folder.mkdir()
    for name, noise in _noises(wanted, talkers):
        level = NOISE_LEVEL * noise
        soundfile.write(folder / f"{name}.wav", pcm16(level), wanted.rate, "PCM_16")


def _noises(wanted: SyntheticSet, talkers: Sequence[Voice]) -> Iterator[tuple[str, np.ndarray]]:
    rng = np.random.default_rng([wanted.seed, 3])
    n = int(NOISE_SECONDS * wanted.rate)
    yield "white_noise", coloured_noise(n, wanted.rate, 0.0, rng)
    yield "pink_noise", coloured_noise(n, wanted.rate, 1.0, rng)
    yield "hum", hum(n, wanted.rate, rng) + 0.1 * coloured_noise(n, wanted.rate, 0.0, rng)
    yield "chirps", chirps(n, wanted.rate, rng)
    talk, rate = speak_all([Utterance(text, v) for v, text in zip(talkers, SMALL_TALK, strict=False)], seed=wanted.seed)
    yield "babble", babble([resample(x, rate, wanted.rate) for x in talk], n, rng)
