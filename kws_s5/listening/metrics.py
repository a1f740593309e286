"""How good detections in a stream are: false alarms per hour against miss rate, for every threshold at once.

Definition of a hit. A detection hits an occurrence of a word when their labels agree and
``start - tolerance <= time <= end + tolerance``. Detections are taken by falling score; each takes the free
occurrence whose end is nearest to its time. An occurrence is hit at most once: a second detection of the same
utterance is a false alarm, because its user would see the action happen twice. What is not a hit is a false alarm; an
occurrence that nothing hits is a miss. Since the best detection of an occurrence is the first to take it, raising the
threshold only removes detections, and one matching serves all thresholds.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

TOLERANCE = 0.5  # seconds around the word: a streaming decision comes a little after the word's end


class Detection(NamedTuple):
    """A word reported by a spotter."""

    label: str
    time: float  # seconds
    score: float


class Occurrence(NamedTuple):
    """A word that was really said."""

    label: str
    start: float  # seconds
    end: float


class Matching(NamedTuple):
    """Scores of the detections that hit, and of those that did not. Occurrences = hits + misses."""

    hits: np.ndarray  # (n_hits,) scores
    false_alarms: np.ndarray  # (n_false,) scores
    n_occurrences: int


def match(detections: Iterable[Detection], truth: Sequence[Occurrence], *, tolerance: float = TOLERANCE) -> Matching:
    """Which detections hit, by the definition above. Neither argument needs to be sorted."""
    assert tolerance >= 0
    occurrences: dict[str, list[Occurrence]] = {}
    for occurrence in sorted(truth, key=lambda o: o.start):
        occurrences.setdefault(occurrence.label, []).append(occurrence)
    starts = {label: [o.start for o in os] for label, os in occurrences.items()}
    longest = {label: max(o.end - o.start for o in os) for label, os in occurrences.items()}
    taken: set[tuple[str, int]] = set()
    hits, false_alarms = [], []
    for label, time, score in sorted(detections, key=lambda d: (-d.score, d.time)):
        best = None
        first = bisect_left(starts.get(label, []), time - tolerance - longest.get(label, 0.0))
        for i in range(first, len(starts.get(label, []))):
            occurrence = occurrences[label][i]
            if occurrence.start - tolerance > time:
                break
            if time <= occurrence.end + tolerance and (label, i) not in taken:
                distance = abs(time - occurrence.end)
                best = min(best or (distance, i), (distance, i))
        if best is None:
            false_alarms.append(score)
        else:
            taken.add((label, best[1]))
            hits.append(score)
    return Matching(np.array(hits, dtype=float), np.array(false_alarms, dtype=float), len(truth))


def operating_table(matching: Matching, seconds: float, *, thresholds: Sequence[float] | None = None) -> list[dict]:
    """What each threshold costs: rows of threshold, hits, misses, miss_rate, false_alarms, false_alarms_per_hour.

    Args:
        matching: result of ``match``; add up several recordings with ``pool``.
        seconds: all the audio that was listened to, words included.
        thresholds: a detection counts if score >= threshold. None: every score that occurs, rising.

    ``miss_rate`` is None without occurrences.
    """
    assert seconds > 0
    hits, false_alarms = np.sort(matching.hits), np.sort(matching.false_alarms)
    if thresholds is None:
        thresholds = np.unique(np.concatenate([hits, false_alarms]))
    n = matching.n_occurrences
    rows = []
    for threshold in thresholds:
        n_hits = len(hits) - int(np.searchsorted(hits, threshold, side="left"))
        n_false = len(false_alarms) - int(np.searchsorted(false_alarms, threshold, side="left"))
        rows.append(
            {
                "threshold": float(threshold),
                "hits": n_hits,
                "misses": n - n_hits,
                "miss_rate": (n - n_hits) / n if n else None,
                "false_alarms": n_false,
                "false_alarms_per_hour": n_false * 3600.0 / seconds,
            }
        )
    return rows


def det_curve(matching: Matching, seconds: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Detection error trade-off: (false alarms per hour, miss rate, threshold), each (T,), by rising threshold.

    The last point is (0, 1, inf): nothing is ever reported. Needs at least one occurrence.
    """
    assert matching.n_occurrences > 0
    scores = np.unique(np.concatenate([matching.hits, matching.false_alarms]))
    rows = operating_table(matching, seconds, thresholds=[*scores, np.inf])
    columns = ("false_alarms_per_hour", "miss_rate", "threshold")
    return tuple(np.array([row[c] for row in rows]) for c in columns)


def threshold_for(matching: Matching, seconds: float, max_false_alarms_per_hour: float) -> float:
    """Smallest threshold whose false alarms per hour do not exceed the limit: the fewest misses it allows.

    Above the scores of all detections that the limit excludes; 0.0 when even no threshold at all keeps to it.
    """
    allowed = int(np.floor(max_false_alarms_per_hour * seconds / 3600.0 + 1e-9))
    falling = np.sort(matching.false_alarms)[::-1]
    return 0.0 if len(falling) <= allowed else float(np.nextafter(falling[allowed], np.inf))


def pool(matchings: Iterable[Matching]) -> Matching:
    """Several recordings, or several words, as one."""
    parts = list(matchings)
    hits, false_alarms = ([np.zeros(0)] + [m[column] for m in parts] for column in (0, 1))
    return Matching(np.concatenate(hits), np.concatenate(false_alarms), sum(m.n_occurrences for m in parts))


def match_by_label(
    detections: Sequence[Detection], truth: Sequence[Occurrence], *, tolerance: float = TOLERANCE
) -> dict[str, Matching]:
    """``match`` for each label alone: words have no say in each other's hits, so ``pool`` of these equals ``match``."""
    labels = sorted({d.label for d in detections} | {o.label for o in truth})
    return {
        label: match(
            [d for d in detections if d.label == label], [o for o in truth if o.label == label], tolerance=tolerance
        )
        for label in labels
    }
