"""Scores of whole clips, against values worked out by hand."""

import math
import subprocess
import sys

import numpy as np
import pytest

from kws_s5 import metrics


def test_accuracy_is_the_share_of_equal_entries():
    assert metrics.accuracy([0, 1, 2, 2], [0, 1, 1, 2]) == 0.75
    assert math.isnan(metrics.accuracy([], []))


def test_wilson_interval_of_8_in_10_is_the_textbook_one():
    # p = 0.8, n = 10, z = 1.959964: centre (0.8 + 0.192073) / 1.384146 = 0.716740, half width 0.226577
    low, high = metrics.wilson_interval(8, 10)
    assert low == pytest.approx(0.49016, abs=2e-5) and high == pytest.approx(0.94332, abs=2e-5)


def test_wilson_interval_stays_within_0_and_1_and_shrinks_with_the_number_of_clips():
    assert metrics.wilson_interval(0, 5)[0] == 0.0 and metrics.wilson_interval(5, 5)[1] == 1.0
    assert metrics.wilson_interval(0, 0) == (0.0, 1.0)
    widths = [np.subtract(*metrics.wilson_interval(n // 2, n)[::-1]) for n in (10, 100, 1000)]
    assert widths == sorted(widths, reverse=True)


def test_wilson_interval_covers_the_true_share_about_as_often_as_promised():
    draws = np.random.default_rng(0).binomial(50, 0.9, size=4000)
    inside = [low <= 0.9 <= high for low, high in (metrics.wilson_interval(int(k), 50) for k in draws)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)


def test_confusion_rows_are_the_truth_and_absent_classes_keep_their_place():
    matrix = metrics.confusion_matrix([0, 0, 2, 2], [0, 2, 2, 2], 4)
    assert matrix.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]]
    assert metrics.confusion_matrix([], [], 2).tolist() == [[0, 0], [0, 0]]


def test_per_class_scores_by_hand_and_undefined_ones_are_none():
    # a: 2 of 3 found, predicted 2 times, both right. b: 1 of 1 found, predicted twice. c: never said, never predicted.
    rows = metrics.per_class([0, 0, 0, 1], [0, 0, 1, 1], ["a", "b", "c"])
    assert rows[0] == {"label": "a", "precision": 1.0, "recall": pytest.approx(2 / 3), "f1": pytest.approx(0.8), "n": 3}
    assert rows[1] == {"label": "b", "precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "n": 1}
    assert rows[2]["precision"] is None and rows[2]["recall"] is None and rows[2]["n"] == 0
    assert metrics.macro(rows, "recall") == pytest.approx(5 / 6)
    assert metrics.macro(metrics.per_class([], [], ["a"]), "f1") is None


def test_calibration_error_by_hand():
    # Bin (0.5, 0.6]: two clips at 0.6, one right: gap 0.1. Bin (0.9, 1]: two clips at 1.0, both right: gap 0.
    assert metrics.calibration_error([0.6, 0.6, 1.0, 1.0], [1, 0, 1, 1], n_bins=10) == pytest.approx(0.05)


def test_predictions_of_another_length_are_refused():
    with pytest.raises(AssertionError):
        metrics.accuracy([0, 1], [0])


def test_metrics_load_without_scikit_learn():
    code = "import sys, kws_s5.metrics, kws_s5.listening.metrics; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
