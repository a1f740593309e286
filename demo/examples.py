"""The demo's example recordings, spoken by eSpeak NG, and how they are made: python -m kws_s5.demo.examples

They ship with the package (examples/*.flac, under 300 kB together), so that the demo needs no synthesiser. Voices and
words are chosen so that the shipped model, trained on people, understands them: they are no test of it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from kws_s5.atomic import replacing
from kws_s5.data.synthetic.espeak import Utterance, Voice, speak_all
from kws_s5.data.synthetic.sound import coloured_noise, rms
from kws_s5.data.synthetic.stream import synthesise_stream

FOLDER = Path(__file__).with_name("examples")
EXAMPLES = {
    "yes, no": "yes_no.flac",
    "six commands": "six_commands.flac",
    "telephone, 8 kHz": "telephone.flac",
    "in noise": "in_noise.flac",
    "no keyword, 22 kHz": "no_keyword.flac",
}
M1, M3, M7 = (Voice("en-us", variant, speed=130) for variant in ("m1", "m3", "m7"))
THREE = (Voice("en-us", "f2"), Voice("en", "m3"), Voice("en-us", "m1"))
SENTENCE = "the weather was mild"
SEED = 5


def make(folder: Path = FOLDER) -> None:
    """Writes the example files; the same ones every time with the same eSpeak NG."""
    folder.mkdir(exist_ok=True)
    _spoken(folder / "yes_no.flac", ("yes", "no"), 2.8, voices=(M3, THREE[2]))
    _spoken(folder / "six_commands.flac", ("up", "right", "on", "off", "stop", "go"), 6.3, voices=[M7])
    _spoken(folder / "telephone.flac", ("on", "yes", "off", "no"), 4.6, voices=[M1], rate=8000)
    _spoken(folder / "in_noise.flac", ("go", "left", "no"), 3.0, voices=THREE, snr=6.0)
    (speech,), rate = speak_all([Utterance(SENTENCE, M7)], seed=SEED)
    noise = coloured_noise(len(speech), rate, 1.0, np.random.default_rng(SEED))
    level = 0.06 / rms(speech)
    _write(folder / "no_keyword.flac", level * speech + 0.0005 * noise, rate)


def _spoken(
    path: Path, words: tuple[str, ...], seconds: float, *, voices: Sequence[Voice], snr: float = 40.0, rate: int = 16000
) -> None:
    starts = 0.4 + np.arange(len(words)) * (seconds - 0.4) / len(words)
    stream = synthesise_stream(
        list(zip(words, starts.tolist(), strict=True)),
        seconds=seconds,
        rate=rate,
        seed=SEED,
        snr=snr,
        voices=voices,
        reverb=False,
    )
    _write(path, stream.waveform, rate)


def _write(path: Path, waveform: np.ndarray, rate: int) -> None:
    with replacing(path) as temporary:
        soundfile.write(temporary, np.clip(waveform, -1, 1), rate, "PCM_16", format="FLAC")


if __name__ == "__main__":
    make()
