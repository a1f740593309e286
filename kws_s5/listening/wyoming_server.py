"""The wake-word service of the Wyoming protocol, which Home Assistant and its satellites speak.

    describe                                   -> info: one program, one wake model for every word
    detect {names}                             which words to listen for (none named: all)
    audio-start, audio-chunk..., audio-stop    any rate, 1 to 4 bytes a sample, any number of channels
    -> detection {name, timestamp}             as soon as a word is decided
    -> not-detected                            at audio-stop, where nothing was found
    -> error {text, code}                      what was wrong; a client whose frames make no sense is disconnected

Every client has its own streams; the models are shared. The messages and the server come from the package wyoming; the
reader of messages is ours, because a stranger's message may name any length and theirs would wait for it.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event as Message
from wyoming.info import Attribution, Describe, Info, WakeModel, WakeProgram
from wyoming.ping import Ping, Pong
from wyoming.server import AsyncEventHandler
from wyoming.wake import Detect, Detection, NotDetected

from kws_s5 import __version__
from kws_s5.audio.samples import checked_rate, shown
from kws_s5.errors import UserError
from kws_s5.listening.events import SpotterConfig
from kws_s5.listening.spotter import KeywordSpotter, keywords_of

MOST_DATA = 1 << 16  # bytes of a message's JSON
MOST_PAYLOAD = 1 << 22  # bytes of a chunk: 20 s of 48 kHz stereo in 16 bits
MOST_CHANNELS = 64
LOG = logging.getLogger(__name__)


@dataclass
class Service:
    """What all clients share."""

    models: dict[str, Any]  # name -> Bundle or OnnxModel
    executor: Executor
    threshold: float | None = None
    config: SpotterConfig = SpotterConfig()
    max_clients: int = 64
    clients: int = 0
    seconds: float = 0.0  # of sound heard, of all clients
    detections: int = 0
    words: dict[str, tuple[str, str]] = field(init=False)  # name of a wake model -> (model, word)

    def __post_init__(self) -> None:
        """A word's name is the word itself, or word@model where several models know it."""
        known = [(model, word) for model, bundle in self.models.items() for word in keywords_of(bundle)]
        count = {word: sum(w == word for _, w in known) for _, word in known}
        self.words = {word if count[word] == 1 else f"{word}@{model}": (model, word) for model, word in known}

    def info(self) -> Info:
        """The answer to ``describe``."""
        maker = Attribution("kws_s5", "")
        models = [
            WakeModel(
                name=name,
                attribution=maker,
                installed=True,
                description=f"{word} ({model})",
                version=None,
                languages=[],
                phrase=word,
            )
            for name, (model, word) in self.words.items()
        ]
        program = WakeProgram(
            name="kws_s5",
            attribution=maker,
            installed=True,
            version=__version__,
            models=models,
            description="Keyword spotting with S5 at any sample rate",
        )
        return Info(wake=[program])


class Client(AsyncEventHandler):
    """One connection."""

    def __init__(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.service = service
        self._names = tuple(service.words)
        self._silence()

    async def run(self) -> None:
        """Reads messages until the client leaves, says something that makes no sense, or the server stops."""
        if self.service.clients >= self.service.max_clients:
            await self._quietly(self._complain("too many clients", "busy"))
            self.writer.close()
            return
        self.service.clients += 1
        self._is_running = True
        try:
            while self._is_running and (message := await read_message(self.reader)) is not None:
                if not await self.handle_event(message):
                    break
        except (UserError, asyncio.IncompleteReadError) as error:
            LOG.info("client disconnected: %s", shown(error))
            await self._quietly(self._complain(str(error), "bad-message"))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.service.clients -= 1
            self.writer.close()

    async def handle_event(self, event: Message) -> bool:
        """One message. False: the connection ends. Raises UserError for messages that make no sense."""
        if Describe.is_type(event.type):
            await self.write_event(self.service.info().event())
        elif Detect.is_type(event.type):
            await self._choose(event.data.get("names"))
        elif AudioStart.is_type(event.type):
            self._silence()
        elif AudioChunk.is_type(event.type):
            await self._hear(event)
        elif AudioStop.is_type(event.type):
            await self._stop()
        elif Ping.is_type(event.type):
            await self.write_event(Pong(text=Ping.from_event(event).text).event())
        return True  # messages of other services are passed over, as the protocol asks

    async def _choose(self, names: Any) -> None:
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise UserError("detect: names must be a list of words")
        known = tuple(name for name in self.service.words if not names or name in names)
        if not known:
            await self._complain(f"no such wake word: {shown(', '.join(names))}; describe lists them", "unknown-word")
        self._names = known
        self._silence()

    def _silence(self) -> None:
        """Nothing heard yet; the next chunk says in which format it comes."""
        self._spotters: list[tuple[KeywordSpotter, dict[str, str]]] = []
        self._format: tuple[int, int, int] | None = None
        self._begin, self._found = 0, False

    async def _hear(self, event: Message) -> None:
        x, rate = samples_of(event)
        form = tuple(event.data[name] for name in ("rate", "width", "channels"))
        if form != self._format:  # a new format is a new stream
            self._silence()
            self._format, self._spotters = form, self._open(rate)
            stamp = event.data.get("timestamp")
            self._begin = stamp if isinstance(stamp, int) else 0
        if not len(x):
            return
        loop = asyncio.get_running_loop()
        for spotter, names in self._spotters:
            events = await loop.run_in_executor(self.service.executor, spotter.push, x, rate)
            for found in events:
                await self._tell(names[found.label], found.time)
        self.service.seconds += len(x) / rate

    def _open(self, rate: float) -> list[tuple[KeywordSpotter, dict[str, str]]]:
        """A spotter for every model that knows one of the chosen words, and the names of its words."""
        opened = []
        for model, bundle in self.service.models.items():
            names = {word: name for name, (m, word) in self.service.words.items() if m == model and name in self._names}
            if names:
                spotter = KeywordSpotter(
                    bundle,
                    rate,
                    keywords=tuple(names),
                    thresholds=self.service.threshold,
                    config=self.service.config,
                    channel_axis=1,
                )
                opened.append((spotter, names))
        return opened

    async def _stop(self) -> None:
        for spotter, names in self._spotters:
            for found in spotter.finish():
                await self._tell(names[found.label], found.time)
        if not self._found:
            await self.write_event(NotDetected().event())
        self._silence()

    async def _tell(self, name: str, seconds: float) -> None:
        self._found = True
        self.service.detections += 1
        await self.write_event(Detection(name=name, timestamp=self._begin + round(1000 * seconds)).event())

    async def _complain(self, text: str, code: str) -> None:
        await self.write_event(Error(text=shown(text), code=code).event())

    @staticmethod
    async def _quietly(writing: Any) -> None:
        """A last word to a client that may have gone."""
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(writing, 1.0)


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message, or None at the end of the stream. Raises UserError for what is no message, or too large."""
    try:
        line = await reader.readline()
    except ValueError as error:  # longer than the reader's limit
        raise UserError("message: its first line is too long") from error
    if not line:
        return None
    head = _json_object(line)
    kind, data = head.get("type"), head.get("data") or {}
    n_data, n_payload = (head.get(f"{part}_length") or 0 for part in ("data", "payload"))
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise UserError("message: has no type, or data that is no object")
    for n, most in ((n_data, MOST_DATA), (n_payload, MOST_PAYLOAD)):
        if type(n) is not int or not 0 <= n <= most:
            raise UserError(f"message {shown(kind)}: a length must be a number from 0 to {most}")
    if n_data:
        data = {**data, **_json_object(await reader.readexactly(n_data))}
    payload = await reader.readexactly(n_payload) if n_payload else None
    return Message(kind, data, payload)


def samples_of(event: Message) -> tuple[np.ndarray, float]:
    """Samples (l, C) and rate (Hz) of an audio-chunk: float32 in [-1, 1). Raises UserError for other formats.

    Little-endian signed numbers of 1 to 4 bytes, as everywhere in the protocol.
    """
    rate, width, channels = (event.data.get(name) for name in ("rate", "width", "channels"))
    if any(type(value) is not int for value in (rate, width, channels)):
        raise UserError("audio-chunk: needs rate, width and channels as whole numbers")
    if not 1 <= width <= 4 or not 1 <= channels <= MOST_CHANNELS:
        raise UserError(f"audio-chunk: width {width}, channels {channels}; 1 to 4 bytes, 1 to {MOST_CHANNELS} channels")
    payload = event.payload or b""
    if len(payload) % (width * channels):
        raise UserError(f"audio-chunk: {len(payload)} bytes are no whole number of samples of {width * channels} bytes")
    raw = np.frombuffer(payload, np.uint8).reshape(-1, width)
    wide = np.zeros((len(raw), 4), np.uint8)
    wide[:, 4 - width :] = raw  # the upper bytes of 32 bits: every width has the same full scale
    x = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)
    return x.reshape(-1, channels), checked_rate(rate, "audio-chunk: rate")


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError("message: is no JSON") from error
    if not isinstance(value, dict):
        raise UserError("message: is no JSON object")
    return value


def names_of(sources: Sequence[str], models: Sequence[Any]) -> dict[str, Any]:
    """Models by a short name each: the file's or folder's, with a number where two are alike."""
    named: dict[str, Any] = {}
    for source, model in zip(sources, models, strict=True):
        name = base = source.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].split(".")[0] or "model"
        k = 2
        while name in named:
            name, k = f"{base}-{k}", k + 1
        named[name] = model
    return named
