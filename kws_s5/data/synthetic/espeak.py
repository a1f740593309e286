"""Synthetic speakers: text -> waveform, by eSpeak NG (PyPI: espeakng-loader, GPL, extra ``synth``).

The synthesiser runs in a process of its own (espeak_worker.py); this process never loads it.
"""

import hashlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kws_s5.errors import UserError

ACCENTS = ("en-us", "en", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc")
"""American, British, received pronunciation, Scottish, Lancaster, West Midlands, Caribbean, New York."""

# Timbres that sound like people: no robots, whispers, loud echoes or copies of others.
VARIANTS = (
    "f1",
    "f2",
    "f3",
    "f4",
    "f5",
    "m1",
    "m2",
    "m3",
    "m4",
    "m5",
    "m6",
    "m7",
    "m8",
    "croak",
    "Alex",
    "Andrea",
    "Andy",
    "Annie",
    "Denis",
    "Diogo",
    "Gene",
    "Hugo",
    "Jacky",
    "Lee",
    "Mario",
    "Michael",
    "Mike",
    "Nguyen",
    "Reed",
    "Storm",
    "Tweaky",
    "adam",
    "anika",
    "antonio",
    "aunty",
    "belinda",
    "boris",
    "caleb",
    "david",
    "ed",
    "edward",
    "grandma",
    "gustave",
    "ian",
    "iven2",
    "iven3",
    "john",
    "klatt",
    "klatt3",
    "linda",
    "marcelo",
    "max",
    "miguel",
    "mike2",
    "norbert",
    "pablo",
    "paul",
    "pedro",
    "quincy",
    "rob",
    "sandro",
    "shelby",
    "steph",
    "travis",
    "victor",
)

SEPARATOR = "|"  # in no phoneme's name
VOLUME = 50  # eSpeak's own 100 clips in some voices
MAX_TEXT = 2000  # characters
TIMEOUT = 300.0  # seconds for one list of utterances


@dataclass(frozen=True)
class Voice:
    """One synthetic speaker and manner of speaking."""

    accent: str = "en-us"
    """An eSpeak NG language: one of ACCENTS, or de, fr-fr, ..."""
    variant: str = ""
    """Timbre: one of VARIANTS; empty: the accent's own."""
    pitch: int = 50
    """0 to 99; 50 is the variant's own."""
    speed: int = 160
    """Words a minute, 80 to 450."""
    intonation: int = 50
    """Range of the pitch, 0 (flat) to 99."""

    @property
    def speaker(self) -> str:
        """Eight hexadecimal digits naming who speaks: accent and timbre, not the manner."""
        return hashlib.sha1(f"{self.accent}+{self.variant}".encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Utterance:
    """What is said, and by whom."""

    text: str
    voice: Voice = Voice()
    phonemes: bool = False
    """[[What stands in double brackets]] is read as eSpeak's phonemes."""


def speak(text: str, voice: Voice | None = None, *, seed: int = 0) -> tuple[np.ndarray, int]:
    """``text`` in ``voice`` (default: American) -> waveform (L,) float32 in [-1, 1], and its rate in Hz (22,050).

    Same arguments, same waveform. Raises UserError without the package or for an unknown accent.
    """
    (waveform,), rate = speak_all([Utterance(text, voice or Voice())], seed=seed)
    return waveform, rate


def speak_all(utterances: Sequence[Utterance], *, seed: int = 0) -> tuple[list[np.ndarray], int]:
    """Utterances spoken one after the other by one fresh synthesiser -> waveforms as of ``speak``, rate in Hz."""
    for utterance in utterances:
        _check(utterance.text)
    requests = [
        asdict(u.voice) | {"text": u.text, "voice": _name(u.voice), "volume": VOLUME, "phonemes": u.phonemes}
        for u in utterances
    ]
    return _parse(_worked({"seed": seed % 2**31, "requests": requests}), utterances)


def pronounce(texts: Sequence[str], accent: str = "en-us") -> list[str]:
    """How ``accent`` says each text, as eSpeak's phonemes without stress: texts that sound the same are equal here."""
    return [phonemes.translate({ord(mark): None for mark in "',"}).strip() for phonemes in _phonemes(texts, accent, "")]


def phonemes_of(texts: Sequence[str], accent: str = "en-us") -> list[list[str]]:
    """The phonemes of each text by eSpeak's names, with the stress before them: athena -> a T 'i: n @."""
    return [
        phonemes.replace(" ", SEPARATOR).strip(SEPARATOR).split(SEPARATOR)
        for phonemes in _phonemes(texts, accent, SEPARATOR)
    ]


def _phonemes(texts: Sequence[str], accent: str, between: str) -> list[str]:
    for text in texts:
        _check(text)
    found = json.loads(_worked({"seed": 0, "pronounce": list(texts), "voice": accent, "between": between}))
    if found is None:
        raise _no_accent(accent)
    return found


def _check(text: str) -> None:
    if len(text) > MAX_TEXT or "\0" in text:
        raise UserError(f"cannot speak {text[:40]!r}...: give up to {MAX_TEXT} characters of text")


def _worked(task: dict) -> bytes:
    """The answer of a fresh synthesiser process."""
    library, data = _library()
    task = {"library": library, "data": data} | task
    worker = Path(__file__).with_name("espeak_worker.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(worker)],
            input=json.dumps(task).encode(),
            capture_output=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the speech synthesiser did not answer within {TIMEOUT:.0f} s: try a shorter text") from None
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise UserError(f"the speech synthesiser failed ({reason[0]}): reinstall it, pip install -U kws-s5[synth]")
    return done.stdout


def _no_accent(accent: str) -> UserError:
    return UserError(f"no synthetic voice has the accent {accent!r}: try en-us, en, de, fr-fr")


def _parse(answer: bytes, utterances: Sequence[Utterance]) -> tuple[list[np.ndarray], int]:
    rate, at, waveforms = int.from_bytes(answer[:4], "little", signed=True), 4, []
    if rate <= 0:
        raise UserError("the speech synthesiser does not find its data: pip install --force-reinstall espeakng-loader")
    for utterance in utterances:
        count = int.from_bytes(answer[at : at + 4], "little", signed=True)
        if count < 0:
            raise _no_accent(utterance.voice.accent)
        samples = np.frombuffer(answer, "<i2", count, at + 4)
        waveforms.append(samples.astype(np.float32) / 32768)
        at += 4 + 2 * count
    return waveforms, rate


def _name(voice: Voice) -> str:
    return f"{voice.accent}+{voice.variant}" if voice.variant else voice.accent


def version() -> str:
    """The installed version of the synthesiser's package: part of what determines a synthetic set."""
    _library()
    return importlib.metadata.version("espeakng-loader")


def _library() -> tuple[str, str]:
    try:
        import espeakng_loader
    except ImportError:
        raise UserError("synthetic speech needs eSpeak NG (GPL): pip install kws-s5[synth]") from None
    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
