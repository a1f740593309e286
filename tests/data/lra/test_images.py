"""CIFAR-10 and MNIST files byte for byte, published normalisation, splits and orders of pixels."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from kws_s5.config import LraData
from kws_s5.data.lra import build
from kws_s5.data.lra.images import bit_reversal, grey
from kws_s5.errors import UserError


def write_cifar(root: Path, *, n: int = 30, n_test: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """One training and one test file; returns the training pictures (n, 32, 32, 3) and labels."""
    rng = np.random.default_rng(0)
    root.mkdir(parents=True, exist_ok=True)
    pictures, labels = rng.integers(256, size=(n, 32, 32, 3), dtype=np.uint8), rng.integers(10, size=n, dtype=np.uint8)
    for name, k in (("data_batch_1.bin", n), ("test_batch.bin", n_test)):
        records = [
            bytes([label]) + picture.transpose(2, 0, 1).tobytes()
            for picture, label in zip(pictures[:k], labels[:k], strict=True)
        ]
        (root / name).write_bytes(b"".join(records))
    return pictures, labels


def write_mnist(root: Path, *, compress: bool = False, n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    root.mkdir(parents=True, exist_ok=True)
    pictures, labels = rng.integers(256, size=(n, 28, 28), dtype=np.uint8), rng.integers(10, size=n, dtype=np.uint8)
    for prefix in ("train", "t10k"):
        for name, data in (
            (f"{prefix}-images-idx3-ubyte", struct.pack(">4I", 2051, n, 28, 28) + pictures.tobytes()),
            (f"{prefix}-labels-idx1-ubyte", struct.pack(">2I", 2049, n) + labels.tobytes()),
        ):
            if compress:
                (root / f"{name}.gz").write_bytes(gzip.compress(data))
            else:
                (root / name).write_bytes(data)
    return pictures, labels


def test_image_is_grey_pixels_row_by_row_in_the_published_units(tmp_path: Path) -> None:
    pictures, labels = write_cifar(tmp_path / "cifar-10-batches-bin")
    splits = build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (27, 3, 7)
    for i in range(7):
        luma = np.asarray(Image.fromarray(pictures[i]).convert("L"), np.float64)
        example = splits.test[i]
        assert example.x.shape == (1024, 1)
        assert example.x[:, 0].numpy() == pytest.approx((luma.ravel() / 255 - 122.6 / 255) / (61 / 255), abs=1e-5)
        assert int(example.y) == labels[i]


def test_grey_equals_that_of_an_image_library_for_every_colour() -> None:
    colours = np.random.default_rng(2).integers(256, size=(50_000, 1, 3), dtype=np.uint8)
    assert np.array_equal(grey(colours), np.asarray(Image.fromarray(colours).convert("L")))


def test_scifar_has_three_normalised_values_a_step(tmp_path: Path) -> None:
    pictures, _ = write_cifar(tmp_path)
    splits = build(LraData("scifar", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert splits.n_inputs == 3
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.247, 0.243, 0.261])
    expected = (pictures[4].reshape(-1, 3) / 255 - mean) / std
    assert splits.test[4].x.numpy() == pytest.approx(expected, abs=1e-5)


def test_validation_is_the_published_random_tenth(tmp_path: Path) -> None:
    _, labels = write_cifar(tmp_path)
    splits = build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))
    parts = torch.utils.data.random_split(range(30), (27, 3), generator=torch.Generator().manual_seed(42))
    assert splits.train.targets.tolist() == labels[list(parts[0])].tolist()
    assert splits.validation.targets.tolist() == labels[list(parts[1])].tolist()


@pytest.mark.parametrize("compress", [False, True])
def test_mnist_reads_plain_and_compressed_files(tmp_path: Path, compress: bool) -> None:
    pictures, labels = write_mnist(tmp_path, compress=compress)
    splits = build(LraData("smnist", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (18, 2, 20)
    assert splits.test[3].x[:, 0].numpy() == pytest.approx(pictures[3].ravel() / 255, abs=1e-6)
    assert int(splits.test[3].y) == labels[3]


def test_psmnist_is_the_same_pixels_in_bit_reversed_order(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    plain, permuted = (
        build(LraData(task, root=str(tmp_path), cache=str(tmp_path / "cache"))) for task in ("smnist", "psmnist")
    )
    order = [int(f"{i:010b}"[::-1], 2) for i in range(1024)]
    order = [i for i in order if i < 784]
    assert bit_reversal(784).tolist() == order
    assert permuted.test[2].x.equal(plain.test[2].x[order])


def test_mirror_swaps_left_and_right_in_training_only(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    plain, splits = (
        build(LraData("scifar", root=str(tmp_path), mirror=mirror, cache=str(tmp_path / "cache")))
        for mirror in (False, True)
    )
    picture = plain.train[2].x
    swapped = picture.reshape(32, 32, 3).flip(1).reshape(1024, 3)
    seen = []
    for epoch in range(40):
        splits.train.set_epoch(epoch)
        x = splits.train[2].x
        seen.append(1 if x.equal(swapped) else 0)
        assert x.equal(swapped) or x.equal(picture)
    assert 10 <= sum(seen) <= 30
    assert splits.test[2].x.equal(plain.test[2].x)


def test_limits_take_that_many_examples(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    splits = build(
        LraData("image", root=str(tmp_path), n_train=10, n_validation=2, n_test=3, cache=str(tmp_path / "cache"))
    )
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (10, 2, 3)


def test_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    with open(tmp_path / "data_batch_1.bin", "ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match="not whole records"):
        build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))
    (tmp_path / "data_batch_1.bin").write_bytes(b"\x80" * 3073)
    with pytest.raises(UserError, match="labels above 9"):
        build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))
    write_mnist(tmp_path / "m")
    (tmp_path / "m" / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, 20, 28, 28) + b"short")
    with pytest.raises(UserError, match="has 5 bytes instead of 20 x 28 x 28"):
        build(LraData("smnist", root=str(tmp_path / "m"), cache=str(tmp_path / "cache")))
    write_mnist(tmp_path / "z", compress=True)
    (tmp_path / "z" / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b no")
    with pytest.raises(UserError, match="cannot be read"):
        build(LraData("smnist", root=str(tmp_path / "z"), cache=str(tmp_path / "cache")))


def test_missing_files_are_told_with_the_layout(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no data_batch_1\.bin; data\.root must hold .*CIFAR-10 binary version"):
        build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))
    with pytest.raises(UserError, match=r"has no train-images-idx3-ubyte; data\.root must hold"):
        build(LraData("smnist", root=str(tmp_path), cache=str(tmp_path / "cache")))


@pytest.mark.parametrize("shape", [(0, 28, 28), (20, 0, 28), (20, 5, 5), (2**31, 2**31, 4)])
def test_pictures_that_mnist_does_not_have_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_mnist(tmp_path)
    size = int(np.prod(shape, dtype=np.int64)) % 2**32  # the last one overflows to nothing
    (tmp_path / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, *shape) + bytes(size))
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte: has .*fetch it again"):
        build(LraData("smnist", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_mnist_is_found_where_torchvision_keeps_it(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", compress=True)
    assert len(build(LraData("smnist", root=str(tmp_path), cache=str(tmp_path / "cache"))).test) == 20


def test_missing_training_files_of_cifar_are_told_in_the_note(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    assert "1 of 5 training files" in build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache"))).note


def test_a_folder_in_the_place_of_a_file_is_told_by_its_name(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_2.bin").mkdir()
    with pytest.raises(UserError, match=r"data_batch_2\.bin: is not a file"):
        build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_too_few_pictures_to_split_are_one_line(tmp_path: Path) -> None:
    write_cifar(tmp_path, n=1)
    with pytest.raises(UserError, match=r"data\.root = .* leaves no train examples"):
        build(LraData("image", root=str(tmp_path), cache=str(tmp_path / "cache")))
