"""One synthetic speaker in front of one microphone in one room; several at work at once.

Deterministic by the generator that is handed in, whatever the number of processes.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from rich.console import Console
from rich.progress import track

from kws_s5.audio.resample import resample
from kws_s5.data.synthetic.espeak import Utterance, Voice, speak_all
from kws_s5.data.synthetic.sound import coloured_noise, hum, in_room, rms, room, trim
from kws_s5.data.synthetic.voices import draw_manner
from kws_s5.errors import UserError


def record(
    texts: Sequence[str],
    voice: Voice,
    rng: np.random.Generator,
    *,
    rate: int,
    seconds: float,
    noise: bool = True,
    phonemes: bool = False,
) -> Iterator[np.ndarray]:
    """What ``voice`` says, each text as a recording (L,) of ``seconds``, longer where the text is.

    noise: in a room with noise; phonemes: [[...]] in a text is read as eSpeak's phonemes.

    Raises:
        UserError: no synthesiser, no such accent, or a text of which nothing is heard.
    """
    seed = int(rng.integers(2**31))
    utterances = [Utterance(text, draw_manner(voice, rng), phonemes) for text in texts]
    waveforms, voice_rate = speak_all(utterances, seed=seed)
    response = room(rate, rng) if noise else None
    floor = coloured_noise(int(10 * rate), rate, rng.uniform(0, 2), rng) if noise else None
    if floor is not None and rng.random() < 0.3:
        floor = 0.7 * floor + 0.7 * hum(len(floor), rate, rng)
    for text, waveform in zip(texts, waveforms, strict=True):
        speech = trim(resample(waveform, voice_rate, rate))
        if not len(speech):
            raise UserError(f"the synthesiser says nothing for {text!r}: write it in letters")
        L = max(round(seconds * rate), len(speech) + round(0.1 * rate))
        yield _clip(speech, L, response, floor, rng)


def in_threads(speak: Callable[[int, Voice], None], voices: Sequence[Voice], *, jobs: int, progress: bool) -> None:
    """Calls ``speak`` with the number and the voice of every speaker, ``jobs`` at a time, under a bar."""
    console = Console(stderr=True)
    with ThreadPoolExecutor(max(1, jobs)) as pool:  # threads: the synthesisers are processes, the filters are numpy
        sessions = pool.map(speak, range(len(voices)), voices)
        try:
            for _ in track(
                sessions,
                description="speaking",
                total=len(voices),
                console=console,
                transient=True,
                disable=not (progress and console.is_terminal),
            ):
                pass
        except BaseException:  # Ctrl-C too: do not let the other speakers finish first
            pool.shutdown(cancel_futures=True)
            raise


def _clip(
    speech: np.ndarray, L: int, response: np.ndarray | None, floor: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Speech at a random place and level of a clip of L samples, in its room, over its noise."""
    start = rng.integers(0, L - len(speech) + 1)
    level = 10 ** (rng.uniform(-32, -16) / 20) / rms(speech)
    clip = np.zeros(L, np.float32)
    clip[start : start + len(speech)] = level * speech
    if response is None:
        return clip
    clip = in_room(clip, response)
    snr = rng.uniform(12, 40)
    at = rng.integers(len(floor))
    return clip + np.take(floor, np.arange(at, at + L), mode="wrap") * (level * rms(speech) * 10 ** (-snr / 20))
