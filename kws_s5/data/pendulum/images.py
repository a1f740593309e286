"""Pictures of the pendulum: a white rod on black, 24 x 24 bytes, blended into noise that comes and goes slowly.

The picture of a noise-free angle is a line of width 8 from the middle of a 128 x 128 canvas, 55 long, reduced with a
Lanczos filter. The noise (Becker et al. 2019, section 5): a factor walks at random between 0 (only noise) and 1 (clear
picture), so that a sequence is blind for several frames at a stretch and the model has to carry the state over.

Legend: n sequences, F frames, S = 24 pixels a side.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from kws_s5.processes import n_processors

SIZE = 24  # pixels a side
CANVAS = 128
ROD_LENGTH, ROD_WIDTH = 55, 8  # canvas pixels
ANGLE_JITTER = 1e-5  # rad, of the picture only
CLEAR_FRAMES = 5  # at the start of every sequence


def render(angles: np.ndarray) -> np.ndarray:
    """Clear pictures of angles (F,) in radians -> (F, S, S) uint8.

    Reducing is linear and separable, so all canvases are reduced by two matrix products with Pillow's own filter
    weights: the same numbers as ``resize`` at a sixth of the time.
    """
    canvases = np.stack([_rod(angle) for angle in angles]).astype(np.float32)  # (F, CANVAS, CANVAS)
    weights = _lanczos()
    small = weights @ canvases @ weights.T  # (F, S, S)
    # The small term keeps a full pixel (1 up to rounding) at 255 whatever the order of the sums.
    return (np.clip(small, 0.0, 1.0) * 255.0 + 1e-3).astype(np.uint8)


def _rod(angle: float) -> np.ndarray:
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (CANVAS, CANVAS), 0)
    middle = CANVAS / 2
    tip = (middle + ROD_LENGTH * math.sin(angle), middle + ROD_LENGTH * math.cos(angle))  # rows grow downwards
    ImageDraw.Draw(canvas).line([(middle, middle), tip], fill=1, width=ROD_WIDTH)
    return np.frombuffer(canvas.tobytes(), np.uint8).reshape(CANVAS, CANVAS)


@cache
def _lanczos() -> np.ndarray:
    """Pillow's weights for CANVAS -> S pixels, read off by reducing unit vectors: (S, CANVAS) float32."""
    from PIL import Image

    units = Image.fromarray(np.eye(CANVAS, dtype=np.float32))
    return np.asarray(units.resize((SIZE, CANVAS), Image.Resampling.LANCZOS)).T.copy()


def render_sequences(angles: np.ndarray) -> Iterator[np.ndarray]:
    """Clear pictures of (n, F) angles, one sequence (F, S, S) at a time and in order, made by all processors.

    Threads, not processes: the products run outside the interpreter's lock, and a script needs no main guard.
    """
    _lanczos()
    with ThreadPoolExecutor(n_processors()) as pool:
        yield from pool.map(render, angles)


def clarity(n: int, n_frames: int, rng: np.random.RandomState) -> np.ndarray:
    """How clear each frame is: (n, F) in [0, 1], 1 a clear picture, 0 only noise.

    f_0 ~ U(0, 1), f_{i+1} = clip(f_i + U(-0.2, 0.2), 0, 1); t1 ~ U(0, 0.25), t2 ~ U(0.75, 1) for each sequence;
    clarity = clip((f - t1) / (t2 - t1), 0, 1), and 1 in the first five frames. Drawn in this order, n at a time.
    """
    walk = np.empty((n, n_frames))
    walk[:, 0] = rng.uniform(0.0, 1.0, n)
    steps = rng.uniform(-0.2, 0.2, (n_frames - 1, n))
    for i, step in enumerate(steps):
        walk[:, i + 1] = np.clip(walk[:, i] + step, 0.0, 1.0)
    low, high = rng.uniform(0.0, 0.25, (n, 1)), rng.uniform(0.75, 1.0, (n, 1))
    clear = np.clip((walk - low) / (high - low), 0.0, 1.0)
    clear[:, :CLEAR_FRAMES] = 1.0
    return clear


def blend(pictures: np.ndarray, clear: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Pictures (F, S, S) uint8 and clarity (F,) -> clear * picture + (1 - clear) * U(0, 255), uint8."""
    noise = rng.uniform(0.0, 255.0, pictures.shape)
    weight = clear[:, None, None]
    return (weight * pictures + (1.0 - weight) * noise).astype(np.uint8)
