"""The pendulum sets: physics against scipy's integrator, pictures against Pillow, noise, sampling, determinism."""

import math
import resource

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from scipy.integrate import solve_ivp
from scipy.stats import kstest

from kws_s5.config import PendulumData
from kws_s5.data.batch import collate
from kws_s5.data.pendulum import images as pendulum_images
from kws_s5.data.pendulum import physics as pendulum_physics
from kws_s5.data.pendulum import sampling as pendulum_sampling
from kws_s5.data.pendulum.reader import PendulumSet, build
from kws_s5.data.pendulum.store import recordings
from kws_s5.errors import UserError

SMALL = {"n_train": 12, "n_validation": 5, "n_test": 6}


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> PendulumData:
    return PendulumData(**SMALL, cache=str(tmp_path_factory.mktemp("pendulum")))


def without_pushes(theta: np.ndarray, n_frames: int = 100) -> np.ndarray:
    pushes = np.zeros((n_frames, len(theta)))
    return pendulum_physics.roll_out(theta, np.zeros(len(theta)), pushes=pushes)


def test_motion_without_pushes_is_that_of_an_independent_integrator() -> None:
    theta = np.random.default_rng(0).uniform(0, 2 * math.pi, 5)
    ours = without_pushes(theta)  # (5, 100, 4)
    times = np.arange(400) * 0.0025
    for start, path in zip(theta, ours, strict=True):
        exact = solve_ivp(
            lambda t, s: [s[1], 3 * 9.81 * np.sin(s[0]) - 0.1 * s[1]],
            (0, 1),
            [start, 0.0],
            t_eval=times,
            rtol=1e-10,
            atol=1e-10,
        ).y[0]
        difference = np.angle(np.exp(1j * (path.ravel() - (exact - math.pi))))
        # Semi-implicit Euler is of first order: an error of about step * |omega'| * t = 3e-3 at most.
        assert np.abs(difference).max() < 4e-3


def test_energy_only_leaks_by_friction() -> None:
    path = without_pushes(np.array([math.pi / 2]), 300)[0].ravel()  # released horizontally; 3 s
    omega = np.gradient(np.unwrap(path), 0.0025)[1:-1]
    energy = 0.5 * omega**2 - 3 * 9.81 * np.cos(path[1:-1])  # 0 points down here
    dissipated = np.cumsum(0.1 * omega**2) * 0.0025
    np.testing.assert_allclose(energy + dissipated, energy[0], atol=0.25)  # of a swing of 59 between the extremes
    assert energy[-1] < energy[0] - 1.0


def test_pushes_have_the_stated_strength() -> None:
    angles = pendulum_physics.simulate(4000, 3, np.random.RandomState(0))
    start = angles[:, 0, 0] + math.pi
    assert kstest(start / (2 * math.pi), "uniform").pvalue > 1e-3
    calm = without_pushes(start, 3)
    # The first push comes after frame 0's steps and moves the pendulum for one frame of 0.01 s.
    moved = np.angle(np.exp(1j * (angles[:, 2, 0] - calm[:, 2, 0]))) / 0.01
    assert moved.std() == pytest.approx(0.1, rel=0.05)
    np.testing.assert_allclose(angles[:, 1, 0], calm[:, 1, 0], atol=1e-12)


def test_angles_and_targets_stay_in_range() -> None:
    angles = pendulum_physics.simulate(200, 100, np.random.RandomState(1))
    assert angles.shape == (200, 100, 4) and angles.min() >= -math.pi and angles.max() < math.pi
    y = pendulum_physics.targets(angles)
    assert y.dtype == np.float32
    np.testing.assert_allclose((y**2).sum(-1), 1.0, atol=1e-6)


def test_pictures_are_pillows_own_reduction_of_the_line() -> None:
    angles = np.random.default_rng(2).uniform(-math.pi, math.pi, 40)
    ours = pendulum_images.render(angles).astype(int)
    for angle, picture in zip(angles, ours, strict=True):
        canvas = Image.new("F", (128, 128), 0.0)
        tip = (64 + 55 * math.sin(angle), 64 + 55 * math.cos(angle))
        ImageDraw.Draw(canvas).line([(64, 64), tip], fill=1.0, width=8)
        small = np.asarray(canvas.resize((24, 24), Image.Resampling.LANCZOS))
        assert np.abs(picture - np.clip(small, 0, 1) * 255).max() <= 1.01


def test_picture_points_where_the_angle_does() -> None:
    rows, columns = np.mgrid[:24, :24] - 11.5
    for angle in (0.0, 0.7, -2.0, 3.0):
        picture = pendulum_images.render(np.array([angle]))[0]
        seen = math.atan2((picture * columns).sum(), (picture * rows).sum())
        assert abs(np.angle(np.exp(1j * (seen - angle)))) < 0.05


def test_clarity_is_a_bounded_walk_that_starts_clear() -> None:
    clear = pendulum_images.clarity(3000, 100, np.random.RandomState(3))
    assert clear.min() == 0.0 and clear.max() == 1.0
    assert (clear[:, :5] == 1.0).all()
    # A step of the walk is at most 0.2, magnified by at most 1 / (0.75 - 0.25).
    assert np.abs(np.diff(clear[:, 5:])).max() <= 0.4 + 1e-12
    assert 0.45 < clear[:, 5:].mean() < 0.55  # symmetric thresholds
    blind = (clear[:, 5:] == 0).mean()
    assert 0.15 < blind < 0.35
    following = (clear[:, 6:] == 0)[clear[:, 5:-1] == 0].mean()
    assert following > 3 * blind / 1.5  # blindness lasts


def test_blending_mixes_picture_and_uniform_noise() -> None:
    picture = np.full((3, 24, 24), 200, np.uint8)
    out = pendulum_images.blend(picture, np.array([1.0, 0.5, 0.0]), np.random.RandomState(4))
    assert (out[0] == 200).all()
    assert out[1].min() >= 100 and out[1].max() <= 227 and abs(out[1].mean() - 163.25) < 6
    assert kstest((out[2].ravel() + 0.5) / 255.5, "uniform").pvalue > 1e-3


def test_seen_frames_are_half_of_all_with_mean_interval_two() -> None:
    frames = np.stack(pendulum_sampling.random_frames("train", 2000))
    assert frames.shape == (2000, 50) and (np.diff(frames) > 0).all() and frames.min() == 0 and frames.max() == 99
    gaps = np.diff(frames)
    assert gaps.mean() == pytest.approx(101 / 51, rel=0.01)
    # Drawing without replacement: P(interval = 1) = 50 / 100 of the neighbours, shrinking geometrically.
    assert (gaps == 1).mean() == pytest.approx(0.5, abs=0.02)
    assert (gaps == 2).mean() == pytest.approx(0.5 * 50 / 99, abs=0.02)
    counts = np.bincount(frames.ravel(), minlength=100) / 2000
    assert counts.min() > 0.44 and counts.max() < 0.56


def test_seen_frames_follow_the_published_seeds() -> None:
    expected = np.sort(np.random.default_rng(1003).choice(100, 50, replace=False))
    np.testing.assert_array_equal(pendulum_sampling.random_frames("validation", 5)[3], expected)
    train, test = pendulum_sampling.random_frames("train", 1)[0], pendulum_sampling.random_frames("test", 2001)
    np.testing.assert_array_equal(train, test[2000])


@pytest.mark.parametrize("n_bursts, burst", [(5, 10), (2, 25), (1, 100)])
def test_clusters_are_bursts_of_consecutive_frames(n_bursts: int, burst: int) -> None:
    for frames in pendulum_sampling.clustered_frames(50, n_bursts=n_bursts, burst=burst):
        assert len(frames) == n_bursts * burst and frames[0] >= 0 and frames[-1] < 100
        assert (np.diff(frames) >= 1).all() and (np.diff(frames) > 1).sum() < n_bursts


def test_examples_are_what_the_model_is_promised(small: PendulumData) -> None:
    splits = build(small)
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [12, 5, 6]
    assert splits.n_inputs == 576 and splits.n_outputs == 2
    example = splits.train[3]
    assert example.x.shape == (50, 576) and example.x.dtype == torch.float32
    assert example.x.min() >= 0.0 and 0.9 < example.x.max() <= 1.0
    assert example.y.shape == (50, 2) and example.dt.shape == (50,)
    frames = pendulum_sampling.random_frames("train", 12)[3]
    recording = recordings(small)["train"]
    np.testing.assert_allclose(example.y[:, 0], np.sin(recording.angles[3, frames, 0]), atol=1e-6)
    np.testing.assert_allclose(example.x[7].reshape(24, 24), recording.images[3, frames[7]] / 255.0, atol=1e-6)
    assert example.dt[0] == 1 and (example.dt[1:].numpy() == np.diff(frames)).all()
    batch = collate([splits.train[i] for i in range(4)])
    assert batch.x.shape == (4, 50, 576) and batch.y.shape == (4, 50, 2) and batch.dt.shape == (4, 50)


def test_ignoring_the_intervals_changes_nothing_else(small: PendulumData) -> None:
    dropped = PendulumSet(recordings(small)["train"], pendulum_sampling.random_frames("train", 12), use_dt=False)[2]
    assert dropped.dt is None and torch.equal(dropped.x, build(small).train[2].x)


def test_sets_are_the_same_bytes_every_time_and_differ_from_each_other(small: PendulumData, tmp_path) -> None:
    first, second = recordings(small), recordings(PendulumData(**SMALL, cache=str(tmp_path)))
    for split in first:
        np.testing.assert_array_equal(first[split].images, second[split].images)
        np.testing.assert_array_equal(first[split].angles, second[split].angles)
    assert not np.array_equal(first["train"].angles[:5], first["test"].angles[:5])
    assert not np.array_equal(first["train"].angles[:5], first["validation"].angles[:5])


def test_queries_are_black_pictures_at_unseen_moments(small: PendulumData) -> None:
    recording = recordings(small)["test"]
    data = PendulumSet(recording, [np.array([0, 4, 9])] * 6, queries=[np.array([0.25, 6.0, 9.75])] * 6)
    example = data[1]
    times, is_seen = data.times(1)
    np.testing.assert_array_equal(times, [0, 0.25, 4, 6, 9, 9.75])
    np.testing.assert_array_equal(is_seen, [True, False, True, False, True, False])
    np.testing.assert_allclose(example.dt, [1, 0.25, 3.75, 2, 3, 0.75])
    assert (example.x[~torch.from_numpy(is_seen)] == 0).all() and (example.x[::2].amax(1) > 0).all()
    np.testing.assert_allclose(example.y[1], pendulum_physics.targets(recording.angles[1, 0, 1]), atol=1e-6)
    np.testing.assert_allclose(example.y[3], pendulum_physics.targets(recording.angles[1, 6, 0]), atol=1e-6)


def test_query_frames_are_never_seen_frames(small: PendulumData) -> None:
    seen = pendulum_sampling.random_frames("train", 12)
    for shown, asked in zip(seen, pendulum_sampling.hidden_frames("train", seen, n_query=10), strict=True):
        assert len(asked) == 10 and not set(shown) & set(asked) and (np.diff(asked) > 0).all()
    data = build(PendulumData(**SMALL, cache=small.cache, n_query=10)).train
    assert data[0].x.shape == (60, 576)


def test_mirror_flips_picture_and_sine_of_half_of_the_sequences_and_depends_on_the_epoch(small: PendulumData) -> None:
    recording, seen = recordings(small)["train"], pendulum_sampling.random_frames("train", 12)
    plain, mirrored = PendulumSet(recording, seen), PendulumSet(recording, seen, mirror=True)

    def flipped(epoch: int) -> list[bool]:
        mirrored.set_epoch(epoch)
        flips = []
        for i in range(12):
            a, b = plain[i], mirrored[i]
            flips.append(not torch.equal(a.x, b.x))
            picture = a.x.reshape(-1, 24, 24).flip(2).reshape(-1, 576) if flips[-1] else a.x
            assert torch.equal(picture, b.x) and torch.equal(a.y[:, 1], b.y[:, 1])
            assert torch.equal(b.y[:, 0], -a.y[:, 0] if flips[-1] else a.y[:, 0])
        return flips

    first = flipped(0)
    assert 0 < sum(first) < 12 and first == flipped(0) and first != flipped(1)


def test_impossible_sizes_are_refused_by_name() -> None:
    with pytest.raises(UserError, match="data.n_observed"):
        PendulumData(n_observed=101)
    with pytest.raises(UserError, match="data.n_test"):
        PendulumData(n_test=0)


def test_damaged_sets_are_made_again(tmp_path) -> None:
    config = PendulumData(n_train=2, n_validation=1, n_test=1, cache=str(tmp_path))
    before = recordings(config)["test"].images.copy()
    for path, size in ((next(tmp_path.glob("*/test-images.npy")), 500), (next(tmp_path.glob("*/train-angles.npy")), 0)):
        with open(path, "r+b") as file:
            file.truncate(size)
    left = path.with_name(".train-images.npy.abc.npy")  # of a process that was killed
    left.touch()
    assert np.array_equal(recordings(config)["test"].images, before)
    assert not left.exists()


def test_a_full_disk_is_told_and_leaves_nothing_to_trust(tmp_path) -> None:
    config = PendulumData(n_train=2, n_validation=1, n_test=1, cache=str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot be kept there \(File too large\); free some space"):
            recordings(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.glob("*/*.npy"))
    assert len(recordings(config)["train"]) == 2
