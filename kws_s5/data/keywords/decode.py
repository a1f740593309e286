"""Sound files -> int16 samples in one flat file and one index row a clip.

Samples that are 16-bit values are stored exactly; others (float, 24-bit, compressed, mixed down) are scaled so that the
peak fills the 16 bits, with the factor in the index: nothing clips and quiet recordings keep their digits.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kws_s5.audio.files import load_audio
from kws_s5.errors import UserError

EXACT = np.float32(2.0**-15)
FULL = 0.9999  # of full scale: samples beyond count as clipped
REPORT_EVERY = 50  # clips
INDEX = np.dtype(
    [
        ("offset", "i8"),
        ("length", "i8"),  # in samples of the shard; length 0: unreadable
        ("shard", "i4"),
        ("channels", "i4"),
        ("rate", "f8"),
        ("scale", "f4"),  # waveform = int16 * scale
        ("peak", "f4"),
        ("rms", "f4"),
        ("clipped", "f4"),  # clipped: share of samples at full scale
        ("digest", "u8"),  # of the samples: equal for equal sound
    ]
)


def decode(path: str) -> tuple[np.ndarray, tuple]:
    """One file -> samples (L,) int16 and its index row (offset and shard still 0). Raises UserError."""
    audio = load_audio(path)
    x = audio.waveform
    peak = float(np.abs(x).max())
    whole = np.rint(x * 32768.0)
    if peak <= 1.0 and whole.max() < 32768 and np.array_equal(whole, x * 32768.0):
        scale = EXACT
    else:
        scale = np.float32(max(peak, 1e-9) / 32767)
        whole = np.rint(x / scale)
    samples = whole.astype(np.int16)
    rms = float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))
    clipped = float(np.mean(np.abs(x) >= FULL)) if peak >= FULL else 0.0
    digest = hashlib.blake2b(samples.tobytes(), digest_size=8)
    row = (0, len(samples), 0, audio.channels, audio.rate, scale, peak, rms, clipped, int.from_bytes(digest.digest()))
    return samples, row


def decode_all(paths: Sequence[str], prefix: Path, *, shard: int = 0, done: Callable[[int], None]) -> None:
    """Decodes ``paths`` in order into PREFIX.i16 (samples), .npy (INDEX rows), .json (position -> why unreadable)."""
    index = np.zeros(len(paths), INDEX)
    failures: dict[int, str] = {}
    offset = 0
    with open(f"{prefix}.i16", "wb") as file:
        for i, path in enumerate(paths):
            try:
                samples, index[i] = decode(path)
                samples.tofile(file)
                index[i]["offset"], index[i]["shard"] = offset, shard
                offset += len(samples)
            except UserError as error:
                failures[i] = str(error)
            if i % REPORT_EVERY == REPORT_EVERY - 1:
                done(REPORT_EVERY)
    np.save(f"{prefix}.npy", index, allow_pickle=False)
    Path(f"{prefix}.json").write_text(json.dumps(failures), encoding="utf-8")
