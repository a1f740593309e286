"""The microphone at its own rate -> blocks of samples. The only file that knows sounddevice (extra: listen).

Nothing is asked of the device but what it does anyway: its default rate, its channels. A device that cannot be opened
is told in one line that says what to try. Legend: l samples, C channels.
"""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kws_s5.errors import UserError

BLOCK = 0.08  # seconds
WAITING = 250  # blocks (20 s) that may wait while the model is busy; then sound is lost, and that is said


@dataclass(frozen=True)
class Microphone:
    """An open device."""

    name: str
    rate: float  # Hz
    channels: int
    blocks: Iterator[np.ndarray]  # (l, C) float32, for ever


def devices() -> list[dict[str, Any]]:
    """Input devices: number, name, rate (Hz), channels, default (bool). Raises UserError without sound support."""
    sounddevice = _sounddevice()
    default = sounddevice.default.device[0]
    return [
        {
            "number": i,
            "name": d["name"],
            "rate": d["default_samplerate"],
            "channels": d["max_input_channels"],
            "default": i == default,
        }
        for i, d in enumerate(sounddevice.query_devices())
        if d["max_input_channels"] > 0
    ]


@contextmanager
def microphone(device: str | int | None = None) -> Iterator[Microphone]:
    """Opens a device, by number or a part of its name; None: the system's default. Raises UserError with advice."""
    sounddevice = _sounddevice()
    found = devices()
    if not found:
        raise UserError(
            "no microphone found: plug one in or allow access to it (in a container or over ssh there is "
            "none); recordings can be searched with kws-scan"
        )
    try:
        info = sounddevice.query_devices(device, "input")
    except (ValueError, sounddevice.PortAudioError) as error:
        names = "; ".join(f"{d['number']} {d['name']}" for d in found)
        raise UserError(f"device {device!r}: {_one_line(error)}; there are: {names}") from None
    rate, channels = info["default_samplerate"], min(2, info["max_input_channels"])
    blocks: queue.Queue[np.ndarray | str] = queue.Queue(WAITING)

    def take(data: np.ndarray, frames: int, time: Any, status: Any) -> None:  # on PortAudio's thread: never waits
        try:
            blocks.put_nowait(data[:, :1].copy() if data.shape[1] > 2 else data.copy())  # of an array: the first one
        except queue.Full:
            lost.append(frames)

    def start(channels: int) -> Any:
        stream = sounddevice.InputStream(
            samplerate=rate,
            blocksize=round(BLOCK * rate),
            device=device,
            channels=channels,
            dtype="float32",
            callback=take,
        )
        stream.start()
        return stream

    lost: list[int] = []
    try:
        try:
            stream = start(channels)
        except sounddevice.PortAudioError:
            if channels == info["max_input_channels"]:
                raise
            channels = info["max_input_channels"]  # arrays of microphones open with all their channels only
            stream = start(channels)
    except sounddevice.PortAudioError as error:
        raise UserError(
            f"{info['name']}: cannot be opened at its own {rate:g} Hz ({_one_line(error)}); is another "
            "program using it? kws-listen --list shows the devices"
        ) from None
    try:
        yield Microphone(info["name"], rate, channels if channels <= 2 else 1, _blocks(blocks, lost))
    finally:
        stream.stop()
        stream.close()


def _blocks(blocks: "queue.Queue[np.ndarray]", lost: list[int]) -> Iterator[np.ndarray]:
    while True:
        try:
            yield blocks.get(timeout=5.0)
        except queue.Empty:
            raise UserError("the microphone gives no sound any more: was it unplugged?") from None
        if lost:
            raise UserError(
                "the model is slower than the microphone and sound was lost: use a smaller model, or one "
                "that is not bidirectional"
            )


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError:
        raise UserError("kws-listen needs sounddevice: pip install 'kws-s5[listen]'") from None
    except OSError as error:  # the package is there, the C library is not
        raise UserError(
            f"sound support is missing ({_one_line(error)}): install PortAudio, for example "
            "apt install libportaudio2, or brew install portaudio"
        ) from None
    return sounddevice


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
