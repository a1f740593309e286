"""The three pendulum sets on disk: made once, from fixed seeds, then memory-mapped.

Random streams (S5 and CRU code): RandomState(42) gives the training set, its noise, the test set and its noise, in this
order; RandomState(43) the validation set. Inside a set the order of draws is ours: motion, picture jitter, clarity,
pixel noise sequence by sequence. A set of another size is therefore another draw, not a part of the full set.

Legend: n sequences, F frames, S = 24 pixels a side.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from kws_s5.atomic import replacing
from kws_s5.config import PendulumData
from kws_s5.data.cache import cache_errors, cache_folder, remove_unfinished
from kws_s5.data.pendulum.images import ANGLE_JITTER, SIZE, blend, clarity, render_sequences
from kws_s5.data.pendulum.physics import simulate
from kws_s5.lock import locked

VERSION = 1  # of the generator: a change of its output gets a new number
MOMENTS = 4  # angles kept per frame: the truth between frames


@dataclass(frozen=True)
class Recording:
    """One set. Arrays are read-only memory maps."""

    images: np.ndarray  # (n, F, S, S) uint8, noisy
    angles: np.ndarray  # (n, F, MOMENTS) float64, radians, noise-free; [:, :, 0] belongs to the images

    def __len__(self) -> int:
        return len(self.images)


def recordings(config: PendulumData) -> dict[str, Recording]:
    """The sets "train", "validation" and "test", made first where they are missing (about 20 s, 240 MB)."""
    sizes = {"train": config.n_train, "validation": config.n_validation, "test": config.n_test}
    name = "-".join(map(str, sizes.values()))
    folder = cache_folder(config.cache) / f"pendulum-v{VERSION}-{name}x{config.n_frames}"
    with cache_errors(folder), locked(folder / ".lock"):
        found = _opened(folder, sizes, config.n_frames)
        if found is None:
            _make_all(folder, sizes, n_frames=config.n_frames)
            found = _opened(folder, sizes, config.n_frames)
    assert found is not None, f"{folder} cannot be read back"
    return found


def _opened(folder: Path, sizes: dict[str, int], n_frames: int) -> dict[str, Recording] | None:
    """The sets in ``folder``; None if a file is missing or damaged."""
    try:
        found = {
            split: Recording(
                *(
                    np.asarray(np.load(_path(folder, split, part), mmap_mode="r"))  # quicker to index
                    for part in ("images", "angles")
                )
            )
            for split in sizes
        }
    except (OSError, ValueError, EOFError):
        return None
    whole = all(
        found[split].images.shape == (n, n_frames, SIZE, SIZE) and found[split].angles.shape == (n, n_frames, MOMENTS)
        for split, n in sizes.items()
    )
    return found if whole else None


def _make_all(folder: Path, sizes: dict[str, int], *, n_frames: int) -> None:
    remove_unfinished(folder)
    rng = np.random.RandomState(42)
    _make(folder, "train", n=sizes["train"], n_frames=n_frames, rng=rng)
    _make(folder, "test", n=sizes["test"], n_frames=n_frames, rng=rng)
    _make(folder, "validation", n=sizes["validation"], n_frames=n_frames, rng=np.random.RandomState(43))


def _path(folder: Path, split: str, part: str) -> Path:
    return folder / f"{split}-{part}.npy"


def _make(folder: Path, split: str, *, n: int, n_frames: int, rng: np.random.RandomState) -> None:
    """Draws one set from ``rng`` and writes both files."""
    angles = simulate(n, n_frames, rng, moments=MOMENTS)
    drawn = angles[:, :, 0] + rng.normal(0.0, ANGLE_JITTER, (n, n_frames))
    clear = clarity(n, n_frames, rng)
    with replacing(_path(folder, split, "images")) as temporary, open(temporary, "wb") as file:
        shape = (n, n_frames, SIZE, SIZE)  # written, not mapped: a full disk is told instead of killing the process
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        console = Console(stderr=True)
        pictures = track(render_sequences(drawn), f"pendulum: {split}", n, console=console, disable=n < 500)
        for i, picture in enumerate(pictures):
            file.write(blend(picture, clear[i], rng).tobytes())
    with replacing(_path(folder, split, "angles")) as temporary, open(temporary, "wb") as file:
        np.save(file, angles)
