"""Pathfinder: labels follow from the construction, balance, no leakage, and the archive's files."""

import struct
import zlib
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from kws_s5.config import LraData
from kws_s5.data.lra import build
from kws_s5.data.lra.pathfinder import settings_of
from kws_s5.data.lra.pathfinder_generator import (
    PATHFINDER_32,
    PATHFINDER_128,
    PathfinderSettings,
    Scene,
    image,
    pictures,
    scene,
)
from kws_s5.errors import UserError

TINY = PathfinderSettings(size=20, contour_length=6, seed_distance=4.0, distractor_length=2, n_distractors=1)
BOTH = pytest.mark.parametrize("settings", [PATHFINDER_32, PATHFINDER_128], ids=["32", "128"])


def connected(shown: Scene, settings: PathfinderSettings) -> bool:
    """Whether a walk over dashes whose ends are no more than a gap apart joins the discs; knows no contours."""
    ends = shown.dashes.reshape(-1, 2)  # end j belongs to dash j // 2
    reach = max(settings.margins) + 1e-6
    near = np.hypot(*(ends[:, None] - ends).transpose(2, 0, 1)) <= reach
    start, goal = (np.hypot(*(ends - disc).T).argmin() for disc in shown.markers)
    seen, queue = {start}, deque([start])
    while queue:
        i = queue.popleft()
        for j in {i ^ 1, *np.flatnonzero(near[i])} - seen:
            seen.add(j)
            queue.append(j)
    return goal in seen


@BOTH
def test_labels_follow_from_the_picture(settings: PathfinderSettings) -> None:
    for i in range(16):
        shown = scene(settings, seed=5, index=i)
        assert connected(shown, settings) == bool(shown.label) == bool(i % 2)


@BOTH
def test_scenes_have_the_published_numbers(settings: PathfinderSettings) -> None:
    shown = scene(settings, seed=1, index=0)
    n = 2 * settings.contour_length + settings.n_distractors * settings.distractor_length
    assert shown.dashes.shape == (n, 2, 2)
    lengths = np.hypot(*(shown.dashes[:, 1] - shown.dashes[:, 0]).T)
    assert lengths == pytest.approx(np.full(n, settings.paddle_length))
    low, high = settings.padding, settings.size - settings.padding
    assert (shown.dashes >= low).all() and (shown.dashes <= high).all()
    gaps = shown.dashes[1 : settings.contour_length, 0] - shown.dashes[: settings.contour_length - 1, 1]
    assert any(np.hypot(*gaps.T) == pytest.approx(np.full(len(gaps), margin)) for margin in settings.margins)


def test_pathfinder_128_has_the_distractors_of_path_x() -> None:
    assert (PATHFINDER_128.n_distractors, PATHFINDER_128.distractor_length) == (7, 4)


def test_contours_keep_their_distance() -> None:
    """Dashes of different contours are never closer than the ends of a gap: the picture decides the label."""
    shown = scene(PATHFINDER_32, seed=3, index=4)
    bounds = np.cumsum([14, 14] + [4] * 5)
    contour = np.searchsorted(bounds, np.arange(len(shown.dashes)), side="right")
    start, along = shown.dashes[:, None, 0], (shown.dashes[:, 1] - shown.dashes[:, 0])[:, None]
    points = start + np.linspace(0, 1, 9)[:, None] * along
    for a in range(len(points)):
        for b in range(a):
            if contour[a] != contour[b]:
                gap = np.hypot(*(points[a][:, None] - points[b]).transpose(2, 0, 1)).min()
                assert gap > 2.0 * PATHFINDER_32.margins[0]


def test_distance_of_the_discs_hardly_tells_the_label() -> None:
    shown = [scene(TINY, seed=0, index=i) for i in range(300)]
    distance = np.array([np.hypot(*(s.markers[0] - s.markers[1])) for s in shown])
    label = np.array([s.label for s in shown])
    assert abs(distance[label == 1].mean() - distance[label == 0].mean()) < 0.75 * distance.std()


def test_pictures_are_reproducible_whatever_the_number_of_processes() -> None:
    one, two = (list(pictures(TINY, first=0, n=260, seed=0, n_workers=n)) for n in (1, 2))
    assert all(np.array_equal(a, b) and x == y for (a, x), (b, y) in zip(one, two, strict=True))
    tail = next(pictures(TINY, first=255, n=1, seed=0))
    assert np.array_equal(tail[0], one[255][0])
    assert not np.array_equal(next(pictures(TINY, first=0, n=1, seed=1))[0], one[0][0])


def test_generated_splits_are_balanced_and_share_no_picture(tmp_path: Path) -> None:
    splits = build(
        LraData(
            "pathfinder", n_train=80, n_validation=20, n_test=20, image_size=20, contour_length=6, cache=str(tmp_path)
        )
    )
    sets = (splits.train, splits.validation, splits.test)
    assert [s.targets.mean() for s in sets] == [0.5, 0.5, 0.5]
    seen = [s[i].x.numpy().tobytes() for s in sets for i in range(len(s))]
    assert len(set(seen)) == 120
    x = splits.train[0].x
    assert x.shape == (400, 1) and x.min() == -1.0 and x.max() == 1.0


def test_markers_are_the_brightest_and_lie_where_the_scene_has_them() -> None:
    shown = scene(PATHFINDER_32, seed=9, index=1)
    picture = image(shown, PATHFINDER_32)
    for x, y in shown.markers:
        assert picture[int(y), int(x)] == 255
    assert 0.5 < np.sort(np.unique(picture))[-2] / 255 <= 0.9


def test_mirror_shows_training_pictures_in_eight_ways_that_depend_on_the_epoch(tmp_path: Path) -> None:
    config = LraData(
        "pathfinder", n_train=8, n_validation=2, n_test=2, image_size=20, contour_length=6, cache=str(tmp_path)
    )
    plain, splits = build(config), build(replace(config, mirror=True))
    square = plain.train[3].x.reshape(20, 20).numpy()
    ways = {np.rot90(m, k).tobytes() for m in (square, square[:, ::-1]) for k in range(4)}
    seen = set()
    for epoch in range(60):
        splits.train.set_epoch(epoch)
        seen.add(splits.train[3].x.numpy().tobytes())
        assert splits.train[3].x.equal(splits.train[3].x)
    assert seen == ways and len(ways) == 8
    assert splits.test[1].x.equal(plain.test[1].x)


def test_other_sizes_keep_the_proportions() -> None:
    settings = settings_of(LraData("pathfinder", image_size=16, contour_length=6))
    assert (settings.size, settings.seed_distance) == (16, 3.5)
    assert (settings.distractor_length, settings.n_distractors) == (2, 1)
    with pytest.raises(UserError, match="do not fit"):
        scene(settings_of(LraData("pathfinder", image_size=8, contour_length=14)), seed=0, index=0)


def write_archive(root: Path, *, n: int = 20, size: int = 32) -> None:
    base = root / "pathfinder32" / "curv_contour_length_14"
    rng = np.random.default_rng(0)
    (base / "metadata").mkdir(parents=True)
    for folder in range(2):
        (base / "imgs" / str(folder)).mkdir(parents=True)
        lines = []
        for i in range(n // 2):
            picture = rng.integers(256, size=(size, size), dtype=np.uint8)
            Image.fromarray(picture).save(base / "imgs" / str(folder) / f"sample_{i}.png")
            lines.append(f"imgs/{folder} sample_{i}.png {i} {i % 2} 1.8 14 2 0.5")
        (base / "metadata" / f"{folder}.npy").write_text("\n".join(lines) + "\n")


def test_replaced_pictures_are_read_anew(tmp_path: Path) -> None:
    write_archive(tmp_path)
    config = LraData("pathfinder", root=str(tmp_path), cache=str(tmp_path / "cache"))
    before = build(config).train[0].x
    for path in (tmp_path / "pathfinder32").rglob("*.png"):
        Image.fromarray(np.full((32, 32), 255, np.uint8)).save(path)
    assert not torch.equal(build(config).train[0].x, before) and bool((build(config).train[0].x == 1.0).all())


def test_archive_is_split_as_published(tmp_path: Path) -> None:
    write_archive(tmp_path)
    splits = build(LraData("pathfinder", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [16, 2, 2]
    order = torch.utils.data.random_split(range(20), (16, 2, 2), generator=torch.Generator().manual_seed(42))
    i = list(order[0])[5]
    path = tmp_path / "pathfinder32" / "curv_contour_length_14" / "imgs" / str(i // 10) / f"sample_{i % 10}.png"
    expected = np.asarray(Image.open(path), np.float64).ravel() / 255 * 2 - 1
    assert splits.train[5].x[:, 0].numpy() == pytest.approx(expected, abs=1e-6)
    assert int(splits.train[5].y) == i % 2


def test_empty_picture_is_left_out_and_told(tmp_path: Path) -> None:
    write_archive(tmp_path)
    empty = tmp_path / "pathfinder32" / "curv_contour_length_14" / "imgs" / "0" / "sample_3.png"
    empty.write_bytes(b"")
    splits = build(LraData("pathfinder", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert splits.report["left_out"] == [str(empty)]
    assert sum(len(s) for s in (splits.train, splits.validation, splits.test)) == 19


def test_wrong_files_are_refused_in_one_line(tmp_path: Path) -> None:
    write_archive(tmp_path / "a", size=16)
    with pytest.raises(UserError, match="is 16 x 16 pixels instead of 32 x 32"):
        build(LraData("pathfinder", root=str(tmp_path / "a"), cache=str(tmp_path / "cache")))
    write_archive(tmp_path / "b")
    np.save(tmp_path / "b" / "pathfinder32" / "curv_contour_length_14" / "metadata" / "0.npy", np.zeros(3))
    with pytest.raises(UserError, match=r"0\.npy, line 1: expected folder, file, number and label"):
        build(LraData("pathfinder", root=str(tmp_path / "b"), cache=str(tmp_path / "cache")))
    with pytest.raises(UserError, match=r"has no metadata; data\.root must hold pathfinder128/"):
        build(LraData("pathx", root=str(tmp_path / "b"), cache=str(tmp_path / "cache")))


@pytest.mark.parametrize(
    "line", ["/etc x.png 0 1", "imgs/0 /tmp/x.png 0 1", "imgs/../../0 x.png 0 1", "imgs/0 ..\\x.png 0 1"]
)
def test_metadata_cannot_point_outside_the_archive(tmp_path: Path, line: str) -> None:
    write_archive(tmp_path)
    (tmp_path / "pathfinder32" / "curv_contour_length_14" / "metadata" / "0.npy").write_text(line + "\n")
    with pytest.raises(UserError, match=r"0\.npy, line 1: expected folder, file"):
        build(LraData("pathfinder", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_pictures_that_claim_to_be_huge_are_refused_in_one_line(tmp_path: Path) -> None:
    write_archive(tmp_path)
    head = b"IHDR" + struct.pack(">2I5B", 40_000, 40_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    bomb += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    (tmp_path / "pathfinder32" / "curv_contour_length_14" / "imgs" / "0" / "sample_3.png").write_bytes(bomb)
    with pytest.raises(UserError, match=r"sample_3\.png: cannot be read as a PNG picture"):
        build(LraData("pathfinder", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_too_few_pictures_to_split_are_told(tmp_path: Path) -> None:
    write_archive(tmp_path, n=2)
    with pytest.raises(UserError, match=r"data\.root = .* leaves no validation examples"):
        build(LraData("pathfinder", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_sizes_that_cannot_be_drawn_are_refused_by_name() -> None:
    for size in (1, 100_000):
        with pytest.raises(UserError, match=r"data\.image_size"):
            LraData("pathfinder", image_size=size)
