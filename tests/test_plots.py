"""Plots are real PNG files, readable in grey, drawn without global state."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from kws_s5 import plots

ROWS = [
    {"rate": rate, "accuracy": accuracy, "low": accuracy - 0.05, "high": accuracy + 0.05, "protocol": protocol}
    for protocol, accuracy in (("rescaled", 0.9), ("not rescaled", 0.2))
    for rate in (8000, 16000.0)
]
DRAW = {
    "curves": lambda path: plots.learning_curves(
        [
            {"epoch": i, "train_loss": 1 / (i + 1), "validation/loss": 0.5, "validation_accuracy": "", "lr": 0.1}
            for i in range(3)
        ],
        path,
    ),
    "confusion": lambda path: plots.confusion(np.array([[3, 1], [0, 0]]), ["yes", "no"], path, title="16000 Hz"),
    "rate": lambda path: plots.accuracy_by_rate(ROWS, path, chance=0.5),
    "snr": lambda path: plots.accuracy_by_snr(
        [{"snr": snr, "accuracy": 0.5, "protocol": "white"} for snr in (None, 20.0, 0.0)], path
    ),
    "det": lambda path: plots.det({"yes": (np.array([10, 1, 0]), np.array([0, 0.5, 1]))}, path),
    "waveform": lambda path: plots.waveform(np.sin(np.arange(16000) / 9), 16000, path),
    "features": lambda path: plots.features(np.eye(50, 8), path, frame_rate=100, frequencies=np.arange(8) * 1000),
    "scores": lambda path: plots.scores(
        np.arange(9) / 9, {"yes": np.arange(9) / 9}, path, events=[("yes", 0.9)], threshold=0.5
    ),
}


@pytest.mark.parametrize("name", DRAW)
def test_every_plot_is_a_png_with_ink_on_white(name, tmp_path):
    path = tmp_path / f"{name}.png"
    DRAW[name](path)
    image = imread(path)
    assert image.shape[1] >= 800 and image[0, 0, :3].tolist() == [1, 1, 1] and image[..., :3].min() < 0.3
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # nothing temporary stays behind


def test_a_matrix_of_another_size_than_its_labels_leaves_the_old_plot_alone(tmp_path):
    path = tmp_path / "confusion.png"
    path.write_bytes(b"old")
    with pytest.raises(AssertionError):
        plots.confusion(np.zeros((2, 2)), ["only one"], path)
    assert path.read_bytes() == b"old"


def test_empty_inputs_are_drawn_as_empty_axes(tmp_path):
    plots.learning_curves([], tmp_path / "a.png")
    plots.waveform(np.zeros(0), 8000, tmp_path / "b.png")
    plots.det({"yes": (np.zeros(1), np.ones(1))}, tmp_path / "c.png")
    assert len(list(tmp_path.iterdir())) == 3


def test_lines_differ_in_dash_and_marker_so_that_grey_is_enough():
    assert len(set(map(str, plots.DASHES))) == len(set(plots.MARKERS)) == len(plots.COLOURS)
    grey = [np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) for colour in plots.COLOURS]
    assert max(grey) < 0.6  # dark enough on white


def test_threads_draw_the_same_picture_as_one_thread(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(DRAW["rate"], paths))
    assert len({path.read_bytes() for path in paths}) == 1


def test_plots_do_not_touch_pyplot(tmp_path):
    code = (
        "import sys, kws_s5.plots; kws_s5.plots.waveform([0.0, 0.1], 2, sys.argv[1]); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.png")], check=True)
