"""Pathfinder and Path-X: pictures read pixel by pixel -> are the two discs joined by a contour?

Files (LRA archive): pathfinder32/ or pathfinder128/ with curv_contour_length_14/imgs/<folder>/<picture>.png and
curv_contour_length_14/metadata/<number>.npy. The latter are text in spite of their name: folder, file, number, label
and more a line. Published split: 80 : 10 : 10, random, seed 42. Without files the task is generated.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from kws_s5.config import LraData
from kws_s5.data.lra.choice import limited, random_parts
from kws_s5.data.lra.pathfinder_generator import PATHFINDER_32, PATHFINDER_128, PathfinderSettings, pictures
from kws_s5.data.lra.progress import with_progress
from kws_s5.data.lra.sets import ALL_SYMMETRIES, PixelSet
from kws_s5.data.lra.sources import found, given
from kws_s5.data.lra.store import Stamp, Writer, prepared, stamp
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

DIFFICULTY = "curv_contour_length_14"
PUBLISHED = {"pathfinder": PATHFINDER_32, "pathx": PATHFINDER_128}
SIZES = {"train": 160_000, "validation": 20_000, "test": 20_000}
LABELS = ("not connected", "connected")
Listed = tuple[Path, int]


def build(config: LraData) -> Splits:
    """Splits of the pictures in ``config.root``, or of generated ones."""
    data = _official(config) if config.root else _generated(config)
    sets = {
        split: PixelSet(
            rows, mean=(0.5,), std=(0.5,), n_symmetries=ALL_SYMMETRIES if config.mirror and split == "train" else 1
        )
        for split, rows in data.rows.items()
    }
    report = {
        "examples": {split: len(s) for split, s in sets.items()},
        "generated": not config.root,
        "left_out": data.meta.get("left_out", []),
    }
    note = f"{config.task} pictures, " + ("the official files" if config.root else f"generated with seed {config.seed}")
    return Splits(sets["train"], sets["validation"], sets["test"], LABELS, 2, report=report, note=note)


def settings_of(config: LraData) -> PathfinderSettings:
    """What is generated: the published settings, or for another size or contour length everything in proportion."""
    published = PUBLISHED[config.task]
    size, dashes = config.image_size or published.size, config.contour_length or published.contour_length
    if (size, dashes) == (published.size, published.contour_length):
        return published
    share = size / published.size
    return replace(
        published,
        size=size,
        contour_length=dashes,
        seed_distance=published.seed_distance * share,
        distractor_length=max(2, int(dashes / 3)),
        n_distractors=max(1, int(published.n_distractors * share**2)),
    )


def _generated(config: LraData):  # noqa: ANN202
    settings = settings_of(config)
    sizes = {"train": config.n_train, "validation": config.n_validation, "test": config.n_test}

    def make(folder: Path) -> dict:
        first = 0
        for split, limit in sizes.items():
            n = limit or SIZES[split]
            writer = Writer(folder, split)
            made = pictures(settings, first=first, n=n, seed=config.seed)
            for image, label in with_progress(made, f"{config.task}: generating {split}", n):
                writer.add(label, image.ravel())
            writer.close()
            first += n
        return {}

    return prepared(config, [], make)


def _official(config: LraData):  # noqa: ANN202
    name = f"pathfinder{PUBLISHED[config.task].size}"
    layout = f"{name}/{DIFFICULTY}/ with imgs/ and metadata/ (the LRA archive)"
    places = [
        place + tail
        for place in ("", "lra_release/", "lra_release/lra_release/")
        for tail in (f"{name}/{DIFFICULTY}", DIFFICULTY)
    ]
    root = found(given(config.root), ("metadata", "imgs"), below=places, layout=layout)
    tables = sorted((root / "metadata").glob("*.npy"), key=lambda path: (len(path.stem), path.stem))
    if not tables:
        raise UserError(f"{root / 'metadata'}: has no .npy files; data.root must hold {layout}")

    def make(folder: Path) -> dict:
        listed = [entry for table in tables for entry in _entries(root, table)]
        n = len(listed)
        parts = random_parts(n, [int(0.8 * n), int(0.1 * n), n - int(0.8 * n) - int(0.1 * n)])
        left_out: list[str] = []
        limits = (config.n_train, config.n_validation, config.n_test)
        for split, part, limit in zip(SIZES, parts, limits, strict=True):
            chosen = [listed[i] for i in limited(part, limit, seed=config.seed)]
            writer = Writer(folder, split)
            for image, label in with_progress(
                _read(chosen, PUBLISHED[config.task].size, left_out), f"{config.task}: {split}", len(chosen)
            ):
                writer.add(label, image.ravel())
            writer.close()
        return {"left_out": left_out}

    return prepared(config, [*stamp(tables), *_picture_stamps(root / "imgs")], make)


def _picture_stamps(imgs: Path) -> list[Stamp]:
    """Of each folder of pictures: size of all and latest change."""
    stamps = []
    for folder in sorted(path for path in imgs.iterdir() if path.is_dir()):
        with os.scandir(folder) as entries:
            infos = [entry.stat() for entry in entries]
        stamps.append((str(folder), sum(i.st_size for i in infos), max((i.st_mtime_ns for i in infos), default=0)))
    return stamps


def _entries(root: Path, table: Path) -> list[Listed]:
    """(picture, label) of the lines of a metadata file."""
    data = table.read_bytes()
    entries = []
    for i, line in enumerate(data.decode("utf-8", errors="replace").splitlines()):
        words = line.split()
        if len(words) < 4 or words[3] not in ("0", "1") or not _inside(words[0], words[1]):
            raise UserError(
                f"{table}, line {i + 1}: expected folder, file, number and label (0 or 1) as text; "
                "take the metadata/ of the LRA archive"
            )
        entries.append((root / words[0] / words[1], int(words[3])))
    return entries


def _inside(folder: str, file: str) -> bool:
    """Whether folder / file stays below the folder that it is joined to."""
    parts = folder.split("/") + file.split("/")
    return not ({"", ".."} & set(parts)) and "\\" not in folder + file and ":" not in folder + file


def _read(entries: list[Listed], size: int, left_out: list[str]) -> Iterator[tuple[np.ndarray, int]]:
    """Pictures (S, S) uint8 and labels; empty files, of which the archive has one, are left out and told."""
    with ThreadPoolExecutor() as threads:
        for start in range(0, len(entries), 1000):  # in pieces, so that pictures do not pile up
            piece = entries[start : start + 1000]
            for (path, label), image in zip(piece, threads.map(lambda e: _picture(e[0], size), piece), strict=True):
                if image is None:
                    left_out.append(str(path))
                else:
                    yield image, label


def _picture(path: Path, size: int) -> np.ndarray | None:
    """(S, S) uint8; None for an empty file."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UserError("reading pictures needs Pillow: pip install kws-s5[lra]") from error
    try:
        if path.stat().st_size == 0:
            return None
        with Image.open(path, formats=["PNG"]) as picture:
            if picture.size != (size, size):
                raise UserError(f"{path}: is {picture.size[0]} x {picture.size[1]} pixels instead of {size} x {size}")
            return np.asarray(picture.convert("L"))
    except UserError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "it is none" if unknown else getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read as a PNG picture ({reason}); unpack the LRA archive again") from error
