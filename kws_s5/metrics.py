"""How good predictions of whole clips are: accuracy with an interval, confusion, per-class scores, calibration.

Legend: n clips, K classes. Truth and predictions are integer classes in [0, K).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Share of correct predictions, in [0, 1]; NaN for no clips."""
    truth, predicted = _pair(truth, predicted)
    return float(np.mean(truth == predicted)) if len(truth) else math.nan


def wilson_interval(n_correct: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion (E. B. Wilson, 1927): stays within [0, 1], also near 0 and 1.

    It counts clips as independent draws. Clips of one speaker resemble each other, so with few speakers the true
    uncertainty is larger. (0, 1) for no clips.
    """
    assert 0 <= n_correct <= n and 0.0 < confidence < 1.0
    if n == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest  # slow to import, and only reports need it

    interval = binomtest(n_correct, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def confusion_matrix(truth: ArrayLike, predicted: ArrayLike, n_classes: int) -> np.ndarray:
    """Counts (K, K) int64: row = true class, column = predicted class."""
    truth, predicted = _pair(truth, predicted)
    if not len(truth):
        return np.zeros((n_classes, n_classes), dtype=np.int64)
    assert min(truth.min(), predicted.min()) >= 0 and max(truth.max(), predicted.max()) < n_classes
    from sklearn import metrics  # slow to import, and only reports need it

    return metrics.confusion_matrix(truth, predicted, labels=np.arange(n_classes)).astype(np.int64)


def per_class(truth: ArrayLike, predicted: ArrayLike, labels: Sequence[str]) -> list[dict]:
    """One row a class: label, precision, recall, f1 (each in [0, 1], None where undefined) and n, its true clips.

    Precision is undefined for a class that was never predicted, recall for one without clips; a mean over classes has
    to leave them out, so they are not written as 0.
    """
    truth, predicted = _pair(truth, predicted)
    if not len(truth):
        return [{"label": label, "precision": None, "recall": None, "f1": None, "n": 0} for label in labels]
    from sklearn import metrics

    scores = metrics.precision_recall_fscore_support(
        truth, predicted, labels=np.arange(len(labels)), zero_division=np.nan
    )
    rows = []
    for label, precision, recall, f1, n in zip(labels, *scores, strict=True):
        rows.append(
            {"label": label, "precision": _known(precision), "recall": _known(recall), "f1": _known(f1), "n": int(n)}
        )
    return rows


def macro(rows: list[dict], score: str) -> float | None:
    """Mean of ``score`` (precision, recall or f1) over the classes of ``per_class`` where it is defined."""
    known = [row[score] for row in rows if row[score] is not None]
    return float(np.mean(known)) if known else None


def calibration_error(confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15) -> float:
    """Expected calibration error: mean |accuracy - confidence| over equal-width bins, weighted by their clips.

    Args:
        confidence: (n,) probability of the predicted class.
        correct: (n,) whether it was right.

    Source: Guo et al., "On calibration of modern neural networks", ICML 2017, equation 3.
    """
    confidence, correct = _pair(np.asarray(confidence, dtype=float), np.asarray(correct, dtype=float))
    if not len(confidence):
        return math.nan
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)  # bin m is (m/M, (m+1)/M]
    gaps = np.bincount(bins, weights=correct - confidence, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(confidence))


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(a), np.asarray(b)
    assert a.ndim == 1 and a.shape == b.shape, f"two (n,) arrays expected, got {a.shape} and {b.shape}"
    return a, b


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
