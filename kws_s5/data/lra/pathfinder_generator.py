"""Pathfinder pictures: are the two discs at the ends of the same long dashed contour? (Linsley et al. 2018; LRA.)

Every picture has two long contours, whose middles lie ``seed_distance`` apart, and shorter distractors. Label 1: the
discs mark both ends of one long contour. Label 0: one end of each; of the four such pairs the one is taken whose
distance is nearest to that between the ends of a contour, so that the distance of the discs tells little.
Picture i of seed s is a function of (s, i) and has label i mod 2, whatever the number of processes.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from kws_s5.data.lra.pathfinder_contours import Canvas, NoRoom, Style, grown, sampled
from kws_s5.data.lra.pathfinder_render import drawn
from kws_s5.errors import UserError
from kws_s5.processes import mapped

CHUNK = 250  # pictures a job
CONTOUR_TRIES, DISTRACTOR_TRIES, PICTURE_TRIES = 4, 40, 500


@dataclass(frozen=True)
class PathfinderSettings:
    """Lengths in pixels. Default: the Long Range Arena's 32 x 32 pictures with contours of 14 dashes."""

    size: int = 32
    padding: float = 1.0
    margins: tuple[float, ...] = (1.0,)
    """Gap between dashes, drawn for every picture."""
    paddle_length: float = 2.0
    thickness: float = 0.5
    marker_radius: float = 1.5
    contour_length: int = 14
    anti_alias: int = 2
    seed_distance: float = 7.0
    continuity: float = 1.0
    distractor_length: int = 4
    n_distractors: int = 5
    snake_contrast: float = 2.0
    paddle_contrast: float = 0.75


PATHFINDER_32 = PathfinderSettings()
PATHFINDER_128 = PathfinderSettings(
    size=128,
    margins=(2.0, 3.0),
    paddle_length=5.0,
    thickness=1.5,
    marker_radius=3.0,
    seed_distance=20.0,
    continuity=1.8,
    n_distractors=int(35 / (14 / 3)),
    snake_contrast=0.9,
    paddle_contrast=1.0,
)


@dataclass(frozen=True)
class Scene:
    """What a picture shows."""

    dashes: np.ndarray  # (n, 2 ends, 2): the two long contours first
    markers: np.ndarray  # (2, 2) centres
    label: int


def pictures(
    settings: PathfinderSettings, *, first: int, n: int, seed: int, n_workers: int | None = None
) -> Iterator[tuple[np.ndarray, int]]:
    """(S, S) uint8 and label of pictures ``first`` to ``first + n - 1``."""
    jobs = [(asdict(settings), seed, i, min(CHUNK, first + n - i)) for i in range(first, first + n, CHUNK)]
    for found in mapped(chunk, jobs, n=n_workers):
        yield from ((image, int(label)) for image, label in zip(found["images"], found["labels"], strict=True))


def chunk(settings: dict, seed: int, first: int, n: int) -> dict[str, np.ndarray]:
    """Images (n, S, S) uint8 and labels (n,)."""
    how = PathfinderSettings(**{**settings, "margins": tuple(settings["margins"])})
    scenes = [scene(how, seed=seed, index=i) for i in range(first, first + n)]
    return {"images": np.stack([image(s, how) for s in scenes]), "labels": np.array([s.label for s in scenes])}


def image(shown: Scene, settings: PathfinderSettings) -> np.ndarray:
    """(S, S) uint8."""
    return drawn(
        shown.dashes,
        shown.markers,
        size=settings.size,
        anti_alias=settings.anti_alias,
        thickness=settings.thickness,
        radius=settings.marker_radius,
        snake_contrast=settings.snake_contrast,
        paddle_contrast=settings.paddle_contrast,
    )


def scene(settings: PathfinderSettings, *, seed: int, index: int) -> Scene:
    """Picture ``index`` of ``seed``. Raises UserError if contours of this length do not fit into the picture."""
    rng = np.random.default_rng([seed, index])
    for _ in range(PICTURE_TRIES):
        try:
            return _attempt(rng, settings, label=index % 2)
        except NoRoom:
            pass
    raise UserError(
        f"data.image_size = {settings.size}, data.contour_length = {settings.contour_length}: such "
        "contours do not fit; make the picture larger or the contours shorter"
    )


def _attempt(rng: np.random.Generator, settings: PathfinderSettings, *, label: int) -> Scene:
    margin = float(rng.choice(settings.margins))
    style = Style(settings.paddle_length, margin, settings.continuity)
    canvas = Canvas(settings.size, settings.padding, clearance=2 * margin + settings.thickness)
    long = _long_contours(rng, canvas, settings, style)
    markers = _markers(rng, long, label=label)
    room = settings.marker_radius + margin  # around a disc nothing but its own contour
    for end in markers:
        for contour in long:
            own = min(np.abs(contour[0, 0] - end).max(), np.abs(contour[-1, 1] - end).max()) < 1e-9
            points = sampled(contour)
            if not own and (((points - end) ** 2).sum(-1) < room**2).any():
                raise NoRoom
    if np.hypot(*(markers[0] - markers[1])) < 2 * settings.marker_radius + 1 or not canvas.inside(markers).all():
        raise NoRoom
    shorter = []
    for _ in range(settings.n_distractors):
        shorter.append(_distractor(rng, canvas, markers, room, settings, style))
        canvas.add(shorter[-1])
    return Scene(np.concatenate([*long, *shorter]), markers, label)


def _long_contours(
    rng: np.random.Generator, canvas: Canvas, settings: PathfinderSettings, style: Style
) -> list[np.ndarray]:
    """Two contours (contour_length, 2, 2) with their middles seed_distance apart, drawn on the canvas."""
    low, high = settings.padding, settings.size - settings.padding
    middle, angle = rng.uniform(low, high, 2), rng.uniform(0.0, 2.0 * np.pi)
    contours = []
    for seed in (middle, middle + settings.seed_distance * np.array([np.cos(angle), np.sin(angle)])):
        contours.append(_tried(rng, canvas, seed, settings, style))
        canvas.add(contours[-1])
    return contours


def _tried(
    rng: np.random.Generator, canvas: Canvas, seed: np.ndarray, settings: PathfinderSettings, style: Style
) -> np.ndarray:
    """A long contour around ``seed``, tried in several directions."""
    for trial in range(CONTOUR_TRIES):
        try:
            return grown(rng, canvas, seed, n_dashes=settings.contour_length, style=style)
        except NoRoom:
            if trial == CONTOUR_TRIES - 1:
                raise
    raise NoRoom


def _markers(rng: np.random.Generator, long: list[np.ndarray], *, label: int) -> np.ndarray:
    """Centres of the two discs (2, 2), in random order."""
    ends = [np.stack([contour[0, 0], contour[-1, 1]]) for contour in long]  # first and last point of each
    one = ends[rng.integers(2)]
    if label:
        return one[rng.permutation(2)]
    wanted = np.hypot(*(one[0] - one[1]))
    pairs = [np.stack([a, b]) for a in ends[0] for b in ends[1]]
    best = min(pairs, key=lambda pair: abs(np.hypot(*(pair[0] - pair[1])) - wanted))
    return best[rng.permutation(2)]


def _distractor(
    rng: np.random.Generator,
    canvas: Canvas,
    markers: np.ndarray,
    room: float,
    settings: PathfinderSettings,
    style: Style,
) -> np.ndarray:
    for _ in range(DISTRACTOR_TRIES):
        try:
            dashes = grown(
                rng, canvas, rng.uniform(0, settings.size, 2), n_dashes=settings.distractor_length, style=style
            )
        except NoRoom:
            continue
        distance = ((sampled(dashes)[:, None] - markers) ** 2).sum(-1)
        if (distance > room**2).all():
            return dashes
    raise NoRoom
