"""Sound and scores as scalable drawings: SVG and HTML text, drawn by the browser in the page's own colours.

A drawing fills the width it gets; curves are stretched, text is not. Legend: L samples, f frames, K curves, C channels.
"""

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from kws_s5.listening.events import Event

COLUMNS = 600  # points of a curve: more than a screen shows
N_COLOURS = 12  # of --w0 ... in style.css
CROWDED = 9.0  # percent of the width within which two flags would hide each other
MAGMA = (
    (0, 0, 4),
    (28, 16, 68),
    (79, 18, 123),
    (129, 37, 129),
    (181, 54, 122),
    (229, 80, 100),
    (251, 135, 97),
    (254, 194, 135),
    (252, 253, 191),
)  # rises steadily in lightness: readable in grey


def frame(content: str, *, height: int, label: str, seconds: float = 0.0, left: str = "", start: float = 0.0) -> str:
    """A box of ``height`` CSS pixels around a drawing.

    Args:
        label: what it shows, for screen readers.
        seconds: length of the time axis; 0: no axis.
        left: text at the upper left, in the drawing.
        start: time at the left edge in seconds.
    """
    note = f'<span class="note">{escape(left)}</span>' if left else ""
    axis = _axis(seconds, start) if seconds else ""
    return (
        f'<div class="drawing" role="img" aria-label="{escape(label)}"><div class="area" style="height:{height}px">'
        f"{content}{note}</div>{axis}</div>"
    )


def wave(waveform: np.ndarray) -> str:
    """Waveform (L,) in [-1, 1] as the range of each column's samples; quiet ones are drawn larger, up to 8 times."""
    edges = np.linspace(0, len(waveform), min(COLUMNS, len(waveform)) + 1).astype(int)[:-1]
    low, high = np.minimum.reduceat(waveform, edges), np.maximum.reduceat(waveform, edges)
    zoom = zoom_of(waveform)
    x = np.linspace(0, 1000, len(edges))
    upper = [f"{a:.1f},{50 - 49 * min(1, b * zoom):.1f}" for a, b in zip(x, high, strict=True)]
    lower = [f"{a:.1f},{50.6 - 49 * max(-1, b * zoom):.1f}" for a, b in zip(x[::-1], low[::-1], strict=True)]
    return _svg(f'<polygon class="wave" points="{" ".join(upper + lower)}"/>', 100)


def zoom_of(waveform: np.ndarray) -> float:
    """How much larger ``wave`` draws a waveform: a power of two."""
    peak = float(np.abs(waveform).max(initial=0.0))
    return float(2 ** np.clip(np.floor(-np.log2(max(peak, 1e-6))), 0, 3))


def heat(image: np.ndarray, *, low: float, high: float, fill: float = 1.0) -> str:
    """A picture (F, C) over time, first channel at the bottom; ``low`` is black, ``high`` is bright.

    ``fill``: share of the height that it takes, from the bottom; the rest stays black (or is cut off, where above 1).
    """
    cells = _thinned(image.T[::-1])  # (C, F), top row first
    grey = np.clip((cells - low) / max(high - low, 1e-9), 0, 1) * 255
    picture = Image.fromarray(grey.astype(np.uint8)).convert("P")
    anchors = np.linspace(0, 255, len(MAGMA))
    palette = np.stack([np.interp(np.arange(256), anchors, [c[i] for c in MAGMA]) for i in range(3)], 1)
    picture.putpalette(palette.astype(np.uint8).tobytes())
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img class="heat" alt="" style="height:{100 * fill:.2f}%" src="data:image/png;base64,{data}">'


def curves(
    times: np.ndarray,
    scores: np.ndarray,
    *,
    start: float,
    seconds: float,
    colours: Sequence[int],
    thresholds: Sequence[float] = (),
) -> str:
    """Scores (f, K) in [0, 1] over ``times`` (f,) of the window [start, start + seconds].

    A dashed line for the ``thresholds`` (K,): one in grey where they are the same, else each in its word's colour.
    """
    lines = dict(zip(thresholds, colours, strict=False))
    parts = [
        f'<line class="threshold{" own" if len(lines) > 1 else ""}" style="--c:var(--w{colour})" x1="0" x2="1000" '
        f'y1="{100 - 96 * value:.1f}" y2="{100 - 96 * value:.1f}"/>'
        for value, colour in lines.items()
    ]
    step = max(1, -(-len(times) // COLUMNS))
    n = len(times) // step * step
    x = 1000 * (times[:n:step] + (times[step - 1 : n : step] - times[:n:step]) - start) / seconds if n else times[:0]
    for k, colour in enumerate(colours):
        high = scores[:n, k].reshape(-1, step).max(1)  # peaks survive the thinning
        points = " ".join(f"{a:.1f},{100 - 96 * b:.1f}" for a, b in zip(x, high, strict=True))
        parts.append(f'<polyline style="stroke:var(--w{colour})" points="{points}"/>')
    return _svg("".join(parts), 102)


def marks(
    events: Sequence[Event], *, start: float, seconds: float, colour_of: dict[str, int], words: bool = True
) -> str:
    """A line, and a flag with the word where ``words``, at the moment of every event."""
    parts, last, raised = [], -100.0, False
    for event in sorted(events, key=lambda event: event.end):
        x = 100 * (event.end - start) / seconds
        if 0 <= x <= 100:
            raised, last = x - last < CROWDED and not raised, x
            side = ("right:0" if x > 88 else "left:0") + ("; bottom:calc(100% + 1.25em)" if raised else "")
            flag = f'<b style="{side}">{escape(event.label)}</b>' if words else ""
            colour = f"var(--w{colour_of.get(event.label, 0)})"
            parts.append(f'<span class="mark" style="left:{x:.2f}%;--c:{colour}">{flag}</span>')
    return "".join(parts)


def _svg(content: str, height: int) -> str:
    return f'<svg viewBox="0 0 1000 {height}" preserveAspectRatio="none" aria-hidden="true">{content}</svg>'


def _axis(seconds: float, start: float) -> str:
    """Round times below the drawing."""
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30) if seconds / s <= 6), 60)
    ticks = step * np.arange(np.ceil(start / step - 1e-9), (start + seconds * 0.97) / step)
    spans = "".join(f'<span style="left:{100 * (t - start) / seconds:.2f}%">{abs(t):g}</span>' for t in ticks.round(2))
    return f'<div class="axis" aria-hidden="true">{spans}<span class="unit">s</span></div>'


def _thinned(cells: np.ndarray) -> np.ndarray:
    """(C, F) with at most 2 * COLUMNS columns, each the highest of those it stands for."""
    step = -(-cells.shape[1] // (2 * COLUMNS))
    if step <= 1:
        return cells
    n = cells.shape[1] // step * step
    return cells[:, :n].reshape(len(cells), -1, step).max(2)
