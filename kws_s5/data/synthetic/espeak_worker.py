"""Speaks with eSpeak NG in a process of its own: JSON requests in on stdin, int16 sound out on stdout.

Run as a file, with the standard library only. eSpeak NG keeps state between words (phases, noise, flutter), so the same
word sounds a little different each time; a fresh process that speaks the same list with the same seed gives the same
bytes. A crash of the synthesiser ends this process, not the caller's.

stdin: one JSON object, {"library", "data", "seed", "requests": [{"text", "voice", "pitch", "speed", "intonation",
"volume", "phonemes"}, ...]}; with "phonemes" text in [[double brackets]] is read as phonemes. stdout: the rate in Hz,
then for each request its number of samples (-1: no such voice) and the samples; all integers little-endian, 4 bytes
(samples 2). With {"pronounce": [...], "voice", "between"} instead of requests: a JSON list of the texts'
phonemes with the character "between" between them (null: no such voice).
"""

import ctypes
import json
import sys
from array import array

SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT: sound goes to the callback, and the call returns when all is said
DO_NOT_EXIT = 0x8000  # espeak_Initialize: report missing data instead of ending the process
UTF8 = 1
PHONEMES = 0x100  # espeakPHONEMES: [[...]] in a text are phonemes
PARAMETERS = {"speed": 1, "volume": 2, "pitch": 3, "intonation": 4}  # espeak_PARAMETER
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """The synthesiser, for this process only (it is not re-entrant)."""

    def __init__(self, library: str, data: str, seed: int) -> None:
        self.sound = array("h")
        self.callback = CALLBACK(self._collect)  # kept alive as long as the library may call it
        self.lib = ctypes.CDLL(library)
        self.rate = self.lib.espeak_Initialize(SYNCHRONOUS, 0, data.encode(), DO_NOT_EXIT)
        self.lib.espeak_SetSynthCallback(self.callback)
        self.lib.espeak_ng_SetRandSeed(ctypes.c_long(seed))

    def say(self, request: dict) -> array | None:
        """int16 samples, or None where the voice does not exist."""
        if self.lib.espeak_SetVoiceByName(request["voice"].encode()) != 0:
            return None
        for name, number in PARAMETERS.items():
            self.lib.espeak_SetParameter(number, request[name], 0)
        text = request["text"].encode()
        self.sound = array("h")
        flags = UTF8 | (PHONEMES if request["phonemes"] else 0)
        self.lib.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, 1, 0, flags, None, None)
        return self.sound

    def pronounce(self, text: str, between: str) -> str:
        """eSpeak's names of the phonemes of ``text``, in the current voice, ``between`` between them (may be empty)."""
        left, phonemes = ctypes.c_char_p(text.encode()), []
        mode = ord(between) << 8 if between else 0
        self.lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        while left.value:  # a clause at a time
            phonemes.append((self.lib.espeak_TextToPhonemes(ctypes.byref(left), UTF8, mode) or b"").decode())
        return " ".join(phonemes)

    def _collect(self, samples: int | None, count: int, events: int | None) -> int:
        if samples and count > 0:
            self.sound.frombytes(ctypes.string_at(samples, 2 * count))
        return 0  # go on


def main() -> int:
    task = json.load(sys.stdin)
    espeak = Espeak(task["library"], task["data"], task["seed"])
    out = sys.stdout.buffer
    if "pronounce" in task:
        known = espeak.rate > 0 and espeak.lib.espeak_SetVoiceByName(task["voice"].encode()) == 0
        found = [espeak.pronounce(text, task["between"]) for text in task["pronounce"]] if known else None
        out.write(json.dumps(found).encode())
        return 0
    out.write(espeak.rate.to_bytes(4, "little", signed=True))
    for request in task["requests"] if espeak.rate > 0 else ():
        sound = espeak.say(request)
        if sound is not None and sys.byteorder == "big":
            sound.byteswap()
        out.write((-1 if sound is None else len(sound)).to_bytes(4, "little", signed=True))
        out.write(b"" if sound is None else sound.tobytes())
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
