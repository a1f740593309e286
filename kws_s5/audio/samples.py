"""Samples of any type and layout -> one mono float32 waveform, never guessed and never rescaled by their own peak.

Integers are divided by their full scale (unsigned ones are centred first); floats are taken as they are. Two axes: the
shorter one is the channels (soundfile gives (L, C), torch (C, L)); channels.py says how they become one.
Legend: L samples, C channels.
"""

import math
import numbers
from typing import Any

import numpy as np

from kws_s5.audio.channels import downmix
from kws_s5.errors import UserError
from kws_s5.printable import printable

shown = printable  # of names in messages
MIN_RATE, MAX_RATE = 2_000, 192_000  # Hz
MAX_CHANNELS = 32
MAX_LEVEL = 32.0  # 30 dB above full scale: no recording, but 16-bit values kept as floats
FULL_SCALE = {
    "int8": (0, 2**7),
    "uint8": (2**7, 2**7),
    "int16": (0, 2**15),
    "uint16": (2**15, 2**15),
    "int32": (0, 2**31),
}  # its offset and scale


def checked_rate(rate: Any, where: str = "rate") -> float:
    """``rate`` in Hz (int where it is whole) if a recording can have it, else UserError."""
    real = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    if not real or not math.isfinite(rate):
        raise UserError(f"{where}: {rate!r} is no sample rate; give a number in Hz, for example 16000")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UserError(f"{where}: {rate:g} Hz is outside {MIN_RATE} to {MAX_RATE} Hz; check the file or the number")
    return int(rate) if rate == int(rate) else float(rate)


def mono(samples: Any, *, channel_axis: int | None = None, where: str = "array") -> np.ndarray:
    """A numpy array, torch tensor or list of samples -> float32 waveform (L,); L may be 0.

    Args:
        samples: (L,), (L, C) or (C, L); int8, uint8, int16, uint16, int32 (scaled) or float (taken as is).
        channel_axis: 0 or 1 where the shape does not tell (for very short pieces of many channels).
        where: name of the array in error messages.

    Raises:
        UserError: type, shape, NaN or level that no recording has.
    """
    return downmix(as_channels(samples, channel_axis=channel_axis, where=where))


def as_channels(samples: Any, *, channel_axis: int | None = None, where: str = "array") -> np.ndarray:
    """As ``mono``, with the channels apart: (L, C) float32."""
    x = _numpy(samples, where)
    if x.ndim == 2:
        x = np.moveaxis(x, _channel_axis(x.shape, channel_axis, where), 1)  # (L, C)
    elif x.ndim == 1:
        x = x[:, None]
    else:
        raise UserError(f"{where}: shape {x.shape} is not one recording; give (L,), (L, channels) or (channels, L)")
    if x.dtype.name in FULL_SCALE:
        offset, scale = FULL_SCALE[x.dtype.name]
        x = ((x.astype(np.float64) - offset) / scale).astype(np.float32)
    elif x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # becomes infinite, which checked_level reports
            x = x.astype(np.float32)
    else:
        raise UserError(f"{where}: {x.dtype} has no known full scale; convert to float in [-1, 1] or to int16")
    return checked_level(x, where)


def checked_level(x: np.ndarray, where: str) -> np.ndarray:
    """``x`` (L,) or (L, C) if it is finite and of a level that a recording can have, else UserError."""
    if not len(x):
        return x
    peak = max(float(x.max()), -float(x.min()))  # NaN and infinity arrive here too
    if not math.isfinite(peak):
        raise UserError(f"{where}: holds NaN or infinite samples; export the recording again")
    if peak > MAX_LEVEL:
        raise UserError(f"{where}: samples reach {peak:.6g}, floats belong in [-1, 1]; divide 16-bit values by 32768")
    return x


def _numpy(samples: Any, where: str) -> np.ndarray:
    if isinstance(samples, (bytes, bytearray, memoryview)) and not typed(samples):
        raise UserError(
            f"{where}: raw bytes do not say what their samples are; give np.frombuffer(chunk, np.int16), "
            "or the type they have"
        )
    if isinstance(samples, dict):
        raise UserError(
            f"{where}: a dict is no samples; of a Hugging Face row, give row['array'] and row['sampling_rate']"
        )
    if hasattr(samples, "detach"):  # a torch tensor, without importing torch here
        samples = samples.detach().cpu()
        samples = samples.float() if samples.is_floating_point() else samples
        samples = samples.resolve_neg().resolve_conj()
    try:
        return np.asarray(samples)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{where}: not an array of samples; give numbers of one type") from error


def typed(samples: bytes | bytearray | memoryview) -> bool:
    """Whether a view names a type that is more than a byte (array.array, numpy)."""
    return isinstance(samples, memoryview) and samples.format not in ("B", "b", "c")


def _channel_axis(shape: tuple[int, ...], chosen: int | None, where: str) -> int:
    if chosen is None and shape[0] == shape[1] and shape[0] > 1:
        raise UserError(f"{where}: shape {shape} does not tell channels from samples; give one channel, shape (L,)")
    axis = chosen if chosen is not None else int(shape[1] <= shape[0])
    if not 1 <= shape[axis] <= MAX_CHANNELS:
        raise UserError(f"{where}: shape {shape} has {shape[axis]} channels; give one to {MAX_CHANNELS}")
    return axis
