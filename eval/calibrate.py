"""Thresholds from a limit on false alarms per hour.

1. Every word starts at ``floor``. The spotter runs on the background, as recorded and in noise: each version has to
   keep to the limit, since scores near a threshold change with every change of the sound. Of its alarms the limit
   allows some, all words together: those with the highest scores. Every other alarm raises the threshold of its word to
   a little above its score. Repeated until the limit is kept, since decisions influence each other.
2. Where a word's clips score higher than that, the threshold moves up to the middle of the gap: no clip that was hit is
   lost, and new background gets some room.
Short background proves little: without any alarm in T hours, the true rate is below 3 / T an hour with 95 % confidence.
"""

from collections.abc import Sequence

import numpy as np

from kws_s5.eval.stream_scores import Track, events_at
from kws_s5.events import SpotterConfig
from kws_s5.stream_metrics import TOLERANCE

FLOOR = 0.3
ABOVE = 0.2  # log odds above an alarm's score: the same sound after another silence scores some 0.1 apart
ROUNDS = 1000


def calibrate(backgrounds: Sequence[Track], words: Track | None, max_false_alarms_per_hour: float,
              config: SpotterConfig, *, floor: float = FLOOR) -> dict[str, float]:
    """Word -> threshold in [floor, 1].

    Args:
        backgrounds: scores on sound without keywords, one for each version of it; each keeps to the limit.
        words: scores on a stream with keywords at known times; None: step 2 is left out.
        max_false_alarms_per_hour: limit for all words together.
        floor: no threshold is lower, however quiet the background.
    """
    limit = max_false_alarms_per_hour
    thresholds = _all_quiet(backgrounds, dict.fromkeys(backgrounds[0].words, floor), limit, config)
    if words is None:
        return thresholds
    raised = _centred(words, thresholds, config)
    # a higher threshold can change which alarms remain; never let that break the limit
    return _all_quiet(backgrounds, raised, limit, config)


def hours_needed(max_false_alarms_per_hour: float) -> float:
    """Background without an alarm that would prove the limit with 95 % confidence (Poisson: -ln 0.05 expected)."""
    return -float(np.log(0.05)) / max_false_alarms_per_hour if max_false_alarms_per_hour > 0 else float("inf")


def a_little_above(score: float) -> float:
    """A probability whose log odds are ABOVE higher."""
    odds = score / max(1.0 - score, 1e-12) * float(np.exp(ABOVE))
    return max(odds / (1.0 + odds), min(1.0, float(np.nextafter(score, 2.0))))


def _all_quiet(backgrounds: Sequence[Track], thresholds: dict[str, float], limit: float,
               config: SpotterConfig) -> dict[str, float]:
    """Raised until every background keeps to ``limit`` alarms an hour."""
    before = None
    while thresholds != before:  # thresholds only rise, so this ends
        before = thresholds
        for background in backgrounds:
            allowed = int(np.floor(limit * background.seconds / 3600 + 1e-9))
            thresholds = _quiet(background, thresholds, allowed, config)
    return thresholds


def _quiet(background: Track, thresholds: dict[str, float], allowed: int, config: SpotterConfig) -> dict[str, float]:
    """Raised until at most ``allowed`` alarms are left."""
    thresholds = dict(thresholds)
    for _ in range(ROUNDS):
        alarms = sorted(events_at(background, thresholds, config), key=lambda event: -event.score)
        if len(alarms) <= allowed or all(thresholds[event.label] >= 1.0 for event in alarms[allowed:]):
            break
        for event in alarms[allowed:]:
            thresholds[event.label] = max(thresholds[event.label], a_little_above(event.score))
    return thresholds


def _centred(words: Track, thresholds: dict[str, float], config: SpotterConfig) -> dict[str, float]:
    """Each threshold halfway to the lowest score of its word's hits."""
    events = events_at(words, thresholds, config)
    raised = dict(thresholds)
    for word, least in thresholds.items():
        scores = _hit_scores(words, word, [e for e in events if e.label == word])
        if len(scores):
            raised[word] = least + 0.5 * (min(scores) - least)
    return raised


def _hit_scores(words: Track, word: str, events: Sequence) -> list[float]:
    """The best score of each occurrence that was hit."""
    found = []
    for truth in (o for o in words.truth if o.label == word):
        scores = [e.score for e in events if truth.start - TOLERANCE <= e.time <= truth.end + TOLERANCE]
        found += [max(scores)] if scores else []
    return found
