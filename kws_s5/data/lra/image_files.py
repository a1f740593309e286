"""The binary files of CIFAR-10 and MNIST, checked byte for byte: sizes, magic numbers, labels. Nothing is unpickled.

CIFAR-10 binary version (Krizhevsky 2009): records of 1 label and 1,024 red, 1,024 green, 1,024 blue bytes, row by row.
MNIST idx (LeCun et al. 1998): big-endian magic number, sizes, then bytes; plain or gzip-compressed.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from kws_s5.errors import UserError

CIFAR_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR_TEST = "test_batch.bin"
RECORD = 1 + 3 * 1024
MAGIC = {"images": 2051, "labels": 2049}
PICTURE = (28, 28)  # of MNIST
LABELS = {
    "CIFAR-10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "MNIST": tuple(map(str, range(10))),
}
MNIST_LAYOUT = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte "
    "(or the same with .gz)"
)
MAX_BYTES = 2**30


def cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, 1024, 3) uint8 pixels and (n,) labels of one file. Raises UserError if it is no such file."""
    data = np.fromfile(path, np.uint8)
    if data.size == 0 or data.size % RECORD:
        raise UserError(
            f"{path}: {data.size:,} bytes are not whole records of {RECORD:,}; fetch the binary version of "
            "CIFAR-10 (cifar-10-binary.tar.gz) again"
        )
    records = data.reshape(-1, RECORD)
    if records[:, 0].max() > 9:
        raise UserError(f"{path}: has labels above 9; it is not the binary version of CIFAR-10")
    return records[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1), records[:, 0]


def mnist(prefix: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, 784, 1) uint8 pixels and (n,) labels of ``prefix``-images-idx3-ubyte and ``prefix``-labels-idx1-ubyte."""
    images, labels = mnist_files(prefix)
    pixels, targets = _idx(images, MAGIC["images"], 3), _idx(labels, MAGIC["labels"], 1)
    if not len(pixels) or pixels.shape[1:] != PICTURE:
        raise UserError(
            f"{images}: has {' x '.join(map(str, pixels.shape))} pixels instead of pictures of 28 x 28; fetch it again"
        )
    if len(pixels) != len(targets) or (len(targets) and targets.max() > 9):
        raise UserError(
            f"{labels}: {len(targets):,} labels do not belong to the {len(pixels):,} pictures of "
            f"{images.name}; fetch both again"
        )
    return pixels.reshape(len(pixels), -1, 1), targets


def mnist_files(prefix: Path) -> tuple[Path, Path]:
    """The files of pictures and labels. Raises UserError if one is missing."""
    return _either(prefix, "images-idx3-ubyte"), _either(prefix, "labels-idx1-ubyte")


def mnist_root(folder: Path) -> Path:
    """``folder``, or the folder below it where other programs keep the four files."""
    places = [folder, *(folder / name for name in ("raw", "MNIST/raw", "mnist", "MNIST"))]
    return next((p for p in places if any(path.exists() for path in _names(p / "train", "images-idx3-ubyte"))), folder)


def _names(prefix: Path, name: str) -> tuple[Path, Path]:
    return Path(f"{prefix}-{name}"), Path(f"{prefix}-{name}.gz")


def _either(prefix: Path, name: str) -> Path:
    for path in _names(prefix, name):
        if path.exists():
            return path
    raise UserError(f"{prefix.parent}: has no {prefix.name}-{name}; data.root must hold {MNIST_LAYOUT}")


def _idx(path: Path, magic: int, n_axes: int) -> np.ndarray:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            data = file.read(MAX_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}); fetch it again") from error
    head = 4 * (1 + n_axes)
    if len(data) < head or struct.unpack(">I", data[:4])[0] != magic:
        raise UserError(f"{path}: is not an idx file of MNIST (magic number {magic}); fetch it again")
    shape = struct.unpack(f">{n_axes}I", data[4:head])
    if len(data) - head != math.prod(shape):
        raise UserError(
            f"{path}: has {len(data) - head:,} bytes instead of {' x '.join(map(str, shape))}; fetch it again"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
