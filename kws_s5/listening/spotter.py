"""KeywordSpotter: sound in, events out. Live from a microphone, many streams at once, or a whole recording.

    spotter = KeywordSpotter("runs/kws12")
    for event in spotter.push(chunk, 48000): print(event.label, event.start, event.score)
    for event in spotter.find("meeting.mp3"): ...              # an hour in constant memory

Models are torch's (bundle.py) or exported (onnx_engine.py: the file's name ends in .onnx, and torch is not needed).
session.py turns sound into scores, events.py scores into events. All methods may be called from any thread.
Legend: N streams, K words.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from kws_s5.audio.files import audio_blocks, load_audio
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN
from kws_s5.errors import UserError
from kws_s5.listening.events import Event, EventFinder, SpotterConfig
from kws_s5.listening.session import Frames, State, StreamingSession

if TYPE_CHECKING:
    from kws_s5.bundle import Bundle
    from kws_s5.listening.onnx_engine import OnnxModel

NO_UNKNOWN = (
    f"this model has no class {UNKNOWN}: whatever is said, it takes for one of its words; train with "
    f"the recipe spotter, or with --data.unknown and other words in a folder {UNKNOWN}"
)
BLOCK = 4.0  # seconds of a file at a time


def open_model(source: str | Path) -> "Bundle | OnnxModel":
    """A run folder, model file or shipped name in torch; a file whose name ends in .onnx in onnxruntime.

    Raises UserError when there is no such model, or what it needs is not installed.
    """
    if Path(source).suffix == ".onnx":
        from kws_s5.listening.onnx_engine import OnnxModel

        return OnnxModel(source)
    from kws_s5.bundle import load

    return load(source)


def keywords_of(bundle: "Bundle | OnnxModel", chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """The words that can become events, in the model's order; UserError for words that the model does not know."""
    known = tuple(label for label in bundle.labels if label not in (UNKNOWN, SILENCE))
    odd = [word for word in chosen if word not in known]
    if odd:
        raise UserError(f"keyword {odd[0]!r}: this model knows {', '.join(known) or 'no words'}")
    return tuple(word for word in known if word in chosen) if chosen else known


def thresholds_of(
    bundle: "Bundle | OnnxModel", words: Sequence[str], given: float | Mapping[str, float] | None, config: SpotterConfig
) -> list[float]:
    """A threshold for each word: ``given`` (one for all, or by word), else the model's own, else the config's.

    Raises UserError for words without a keyword and for numbers outside (0, 1].
    """
    if given is None or isinstance(given, Mapping):
        odd = sorted(set(given or {}) - set(keywords_of(bundle)))
        if odd:
            raise UserError(f"threshold of {odd[0]!r}: this model knows {', '.join(keywords_of(bundle))}")
        by_word = {**bundle.thresholds, **(given or {})}
        values = [by_word.get(word, config.threshold) for word in words]
    else:
        values = [given] * len(words)
    for word, value in zip(words, values, strict=True):
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
            raise UserError(f"threshold of {word!r} = {value!r}: must be in (0, 1]")
    return [float(value) for value in values]


class KeywordSpotter:
    """Finds a model's words in sound of any rate."""

    def __init__(
        self,
        model: "Bundle | OnnxModel | str | Path",
        rate: float | None = None,
        *,
        n_streams: int = 1,
        keywords: Sequence[str] = (),
        thresholds: float | Mapping[str, float] | None = None,
        config: SpotterConfig = SpotterConfig(),  # noqa: B008 - a frozen value
        block: float = 0.0,
        channel_axis: int | None = None,
    ) -> None:
        """Gets ready to listen.

        Args:
            model: a Bundle, run folder, model file, name of a shipped model, or an exported model (.onnx).
            rate: Hz of the stream; None: told by the first ``push``.
            n_streams: streams that advance together (StreamingSession).
            keywords: words of interest; empty: all the model knows but _unknown_ and _silence_.
            thresholds: one for all, or by word; None: those stored in the model by kws-calibrate, else the config's.
            block, channel_axis: as in StreamingSession.

        Raises:
            UserError: no such model or word, or a model that cannot listen.
        """
        self.bundle = open_model(model) if isinstance(model, (str, Path)) else model
        self.config, self.n_streams = config, n_streams
        self.keywords = keywords_of(self.bundle, keywords)
        if not self.keywords:
            raise UserError("this model has no keywords to listen for")
        self.thresholds = thresholds_of(self.bundle, self.keywords, thresholds, config)
        self._columns = [self.bundle.labels.index(word) for word in self.keywords]
        self._options: dict[str, Any] = {"n_streams": n_streams, "block": block, "channel_axis": channel_axis}
        self._lock = RLock()
        self._session: StreamingSession | None = None
        self._finders: list[EventFinder] = []
        if rate is not None:
            self._session = self._open(rate)

    @property
    def rate(self) -> float:
        """Hz of the stream; 0 before its first chunk."""
        return self._session.rate if self._session else 0.0

    @property
    def seconds(self) -> float:
        """Sound heard so far."""
        return self._session.seconds if self._session else 0.0

    @property
    def remark(self) -> str:
        """What users should know about the way this model listens; usually empty."""
        deaf = "" if UNKNOWN in self.bundle.labels else NO_UNKNOWN
        remarks = (self._session.remark if self._session else "", deaf)
        return "; ".join(filter(None, remarks))

    def push(self, samples: Any, rate: float | None = None) -> list[Event]:
        """The next chunk of any length and type (StreamingSession.push) -> the events it decides.

        ``rate`` (Hz) is needed in the first call if the spotter was made without one; another rate is refused later.
        """
        return self.push_frames(samples, rate)[0]

    def push_frames(self, samples: Any, rate: float | None = None) -> tuple[list[Event], Frames]:
        """As ``push``, with the scores of every frame too."""
        with self._lock:
            if self._session is None:
                if rate is None:
                    raise UserError("rate: samples without their rate; push(samples, rate) in Hz, at least once")
                self._session = self._open(rate)
            frames = self._session.push(samples, rate)
            return self._events(frames), frames

    def finish(self) -> list[Event]:
        """The stream is over: the last events. ``reset`` before the next one."""
        with self._lock:
            if self._session is None:
                return []
            events = self._events(self._session.flush())
            return events + [event for finder in self._finders for event in finder.finish()]

    def reset(self, rate: float | None = None) -> None:
        """As new; the only moment when the rate may change (None: it stays)."""
        with self._lock:
            if self._session is not None or rate is not None:
                self._session = self._open(self.rate if rate is None else rate)

    def state(self) -> State:
        """Everything heard so far as named tensors of constant size, ready for safetensors (block = 0, or flushed)."""
        with self._lock:
            if self._session is None:
                raise UserError("state: nothing was heard yet")
            own = {
                f"events.{n}.{name}": self._session.stored(value)
                for n, finder in enumerate(self._finders)
                for name, value in finder.state().items()
            }
            return self._session.state() | own

    def restore(self, state: State) -> None:
        """Goes on where ``state`` was taken; the rate comes with it. Raises UserError when it belongs to another."""
        with self._lock:
            spotter = KeywordSpotter(
                self.bundle,
                float(state.get("rate", 0.0)),
                keywords=self.keywords,
                thresholds=dict(zip(self.keywords, self.thresholds, strict=True)),
                config=self.config,
                **self._options,
            )
            session, finders = spotter._session, spotter._finders
            assert session
            session.restore({name: value for name, value in state.items() if not name.startswith("events.")})
            for n, finder in enumerate(finders):
                mine = {name: np.asarray(value) for name, value in state.items() if name.startswith(f"events.{n}.")}
                mine = {name.rsplit(".", 1)[1]: value for name, value in mine.items()}
                fresh = finder.state()
                if {k: v.shape for k, v in mine.items()} != {k: v.shape for k, v in fresh.items()}:
                    raise UserError("state: belongs to a spotter of other words or settings")
                finder.restore(mine)
            self._session, self._finders = session, finders

    def find(self, source: Any, rate: float | None = None) -> Iterator[Event]:
        """Events of a whole recording, as they are decided: a path, file object, or samples with their rate.

        Files are read in blocks: hours take no more memory than seconds. A stream that is being pushed is not touched.
        """
        spotter = KeywordSpotter(
            self.bundle,
            keywords=self.keywords,
            config=self.config,
            thresholds=dict(zip(self.keywords, self.thresholds, strict=True)),
        )
        blocks = audio_blocks(source, BLOCK) if rate is None else [load_audio(source, rate)]
        for audio in blocks:
            yield from spotter.push(audio.waveform, audio.rate)
        yield from spotter.finish()

    def _open(self, rate: float) -> StreamingSession:
        session = StreamingSession(self.bundle, rate, **self._options)
        self._finders = [
            EventFinder(self.keywords, self.thresholds, session.frame_rate, self.config, stream=n)
            for n in range(self.n_streams)
        ]
        return session

    def _events(self, frames: Frames) -> list[Event]:
        if not len(frames.times):
            return []
        scores = frames.posteriors[:, :, self._columns]  # (N, f, K)
        events = [
            event for finder, own in zip(self._finders, scores, strict=True) for event in finder.push(own, frames.times)
        ]
        return sorted(events, key=lambda event: (event.time, event.stream))
