"""Pictures read pixel by pixel: CIFAR-10 in grey (LRA Image) or colour (sCIFAR), MNIST in order or permuted.

    image     grey as ITU-R 601 luma, (v / 255 - 122.6 / 255) / (61 / 255)            1,024 steps of 1 value
    scifar    red, green, blue, normalised by the channels' means and deviations      1,024 steps of 3 values
    smnist    v / 255                                                                   784 steps of 1 value
    psmnist   the same, pixels in bit-reversed order                                    784 steps of 1 value

Training pictures are split 90 : 10 into training and validation as published (random, seed 42).
"""

from pathlib import Path

import numpy as np

from kws_s5.config import LraData
from kws_s5.data.lra.choice import limited, random_parts
from kws_s5.data.lra.image_files import CIFAR_TEST, CIFAR_TRAIN, LABELS, cifar, mnist, mnist_files, mnist_root
from kws_s5.data.lra.progress import with_progress
from kws_s5.data.lra.sets import LEFT_RIGHT, PixelSet
from kws_s5.data.lra.sources import fetched_archive, fetched_mnist, found, given
from kws_s5.data.lra.store import Writer, prepared, stamp
from kws_s5.data.splits import Splits

CIFAR_LAYOUT = "data_batch_1.bin (to 5) and test_batch.bin (the CIFAR-10 binary version)"
VALIDATION_SHARE = 0.1
MOMENTS = {  # mean and standard deviation of values in [0, 1]
    "image": ((122.6 / 255,), (61.0 / 255,)),
    "scifar": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    "smnist": ((0.0,), (1.0,)),
    "psmnist": ((0.0,), (1.0,)),
}


def build(config: LraData) -> Splits:
    """Splits of the pictures in ``config.root``, or of the official files, downloaded."""
    is_cifar = config.task in ("image", "scifar")
    paths = _cifar_paths(config) if is_cifar else _mnist_paths(config)

    def make(folder: Path) -> dict:
        read = cifar if is_cifar else mnist
        train, test = (
            [np.concatenate(parts) for parts in zip(*(read(path) for path in files), strict=True)]
            for files in (paths["train"], paths["test"])
        )
        n = len(train[0])
        n_validation = n - int(n * (1 - VALIDATION_SHARE))
        chosen = dict(zip(("train", "validation"), random_parts(n, [n - n_validation, n_validation]), strict=True))
        _write(folder, "train", *train, limited(chosen["train"], config.n_train, seed=config.seed), config.task)
        _write(
            folder,
            "validation",
            *train,
            limited(chosen["validation"], config.n_validation, seed=config.seed),
            config.task,
        )
        _write(folder, "test", *test, limited(range(len(test[0])), config.n_test, seed=config.seed), config.task)
        return {}

    files = [path for part in paths.values() for path in part]
    data = prepared(config, stamp(files if is_cifar else [p for path in files for p in mnist_files(path)]), make)
    mean, std = MOMENTS[config.task]
    sets = {}
    for split, rows in data.rows.items():
        order = bit_reversal(len(rows[0])) if config.task == "psmnist" and len(rows) else None
        sets[split] = PixelSet(
            rows, mean=mean, std=std, order=order, n_symmetries=LEFT_RIGHT if config.mirror and split == "train" else 1
        )
    name = "CIFAR-10" if is_cifar else "MNIST"
    note = f"{name} pixel by pixel"
    if is_cifar and len(paths["train"]) < len(CIFAR_TRAIN):
        note += f", {len(paths['train'])} of {len(CIFAR_TRAIN)} training files"
    return Splits(
        sets["train"],
        sets["validation"],
        sets["test"],
        LABELS[name],
        10,
        n_inputs=len(mean),
        report={"examples": {split: len(s) for split, s in sets.items()}},
        note=note,
    )


def grey(pictures: np.ndarray) -> np.ndarray:
    """(n, L, 3) uint8 -> (n, L) uint8: 0.299 red + 0.587 green + 0.114 blue in the integers image libraries use."""
    red, green, blue = np.moveaxis(pictures.astype(np.uint32), -1, 0)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).astype(np.uint8)


def bit_reversal(n: int) -> np.ndarray:
    """The permutation of 0 .. n-1 that counts with reversed bits: 0, 512, 256, 768, ... without numbers from n on."""
    bits = max(1, (n - 1).bit_length())
    numbers = np.arange(2**bits)
    reversed_ = sum(((numbers >> bit) & 1) << (bits - 1 - bit) for bit in range(bits))
    return reversed_[reversed_ < n]


def _cifar_paths(config: LraData) -> dict[str, list[Path]]:
    start = given(config.root) if config.root else fetched_archive("cifar-10", cache=config.cache)
    root = found(start, (CIFAR_TRAIN[0], CIFAR_TEST), below=("cifar-10-batches-bin",), layout=CIFAR_LAYOUT)
    return {"train": [root / name for name in CIFAR_TRAIN if (root / name).exists()], "test": [root / CIFAR_TEST]}


def _mnist_paths(config: LraData) -> dict[str, list[Path]]:
    root = mnist_root(given(config.root) if config.root else fetched_mnist(cache=config.cache))
    return {"train": [root / "train"], "test": [root / "t10k"]}


def _write(folder: Path, split: str, pictures: np.ndarray, labels: np.ndarray, chosen: np.ndarray, task: str) -> None:
    writer = Writer(folder, split)
    for i in with_progress(chosen.tolist(), f"{task}: {split}", len(chosen)):
        picture = grey(pictures[i : i + 1])[0] if task == "image" else pictures[i]
        writer.add(int(labels[i]), picture.ravel())
    writer.close()
