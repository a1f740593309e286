"""The loop of kws-listen: blocks of sound -> lines for found words, and one that shows the level in between."""

import json
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

import numpy as np

from kws_s5.audio.samples import mono
from kws_s5.listening.actions import plain
from kws_s5.listening.events import Event
from kws_s5.listening.spotter import KeywordSpotter

QUIETEST = -80.0  # dB below full scale, left end of the level meter
CLIPPED = 0.999
WIDTH = 20  # characters of the level meter


def listen(
    blocks: Iterable[np.ndarray],
    rate: float,
    spotter: KeywordSpotter,
    *,
    as_json: bool = False,
    seconds: float = 0.0,
    out: TextIO | None = None,
    act: Callable[[Event], None] | None = None,
) -> int:
    """Prints every event as it is decided; returns how many there were.

    Args:
        blocks: (l, C) float32 pieces, in order.
        rate: Hz.
        as_json: a JSON object a line, for programs, and no level.
        seconds: stop after so much sound; 0: at the end of the blocks.
        out: where to; None: stdout. The level is shown on terminals only.
        act: called with every event (actions.py).
    """
    out = out or sys.stdout
    meter = not as_json and out.isatty()
    n = 0
    for block in blocks:
        events, frames = spotter.push_frames(block, rate)
        n += _print(events, out, as_json, meter, act)
        if meter:
            best = _best(frames.posteriors[0], spotter) if len(frames.times) else ""
            out.write(f"\r{_level(block)}  {best:<28}")
            out.flush()
        if seconds and spotter.seconds >= seconds:
            break
    n += _print(spotter.finish(), out, as_json, meter, act)
    if meter:
        out.write("\r" + " " * 70 + "\r")
    return n


def event_line(event: Event) -> str:
    """One event for people."""
    return f"{event.time:8.2f} s  {event.label:<14} {event.score:.2f}"


def level_db(block: np.ndarray) -> float:
    """Root mean square of a block in dB below full scale, at least QUIETEST."""
    x = mono(block, channel_axis=1 if block.ndim == 2 else None)
    power = float(np.mean(np.square(x, dtype=np.float64))) if len(x) else 0.0
    return max(QUIETEST, 10.0 * np.log10(power)) if power else QUIETEST


def _print(
    events: Iterable[Event], out: TextIO, as_json: bool, meter: bool, act: Callable[[Event], None] | None
) -> int:
    n = 0
    for event in events:
        if act:
            act(event)
        line = json.dumps(plain(event)) if as_json else event_line(event)
        out.write(("\r" + line.ljust(70) if meter else line) + "\n")
        out.flush()
        n += 1
    return n


def _level(block: np.ndarray) -> str:
    level = level_db(block)
    filled = round(WIDTH * (1.0 - level / QUIETEST))
    state = "clipped" if float(np.abs(block).max(initial=0.0)) >= CLIPPED else f"{level:4.0f} dB"
    return f"[{'#' * filled:<{WIDTH}}] {state:>7}"


def _best(posteriors: np.ndarray, spotter: KeywordSpotter) -> str:
    """The likeliest label now."""
    k = int(posteriors[-1].argmax())
    return f"{spotter.bundle.labels[k]} {posteriors[-1, k]:.2f}"
