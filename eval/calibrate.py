"""Thresholds from a limit on false alarms per hour.

1. The spotter runs on the background, as recorded and in noise, with every threshold at ``floor``: so many alarms that
   they show how often each word fires, and how fast alarms get rarer as scores rise.
2. Words that fire often get higher thresholds, such that all are expected to fire equally often: their shares are
   counted, half an alarm added to each (Jeffreys' prior of a Poisson rate), and turned into log odds by the slope of
   the highest alarms.
3. All thresholds together rise to where the line through the highest alarms (number falls exponentially with log odds)
   predicts the limit, and on until every version of the background keeps to it: scores near a threshold change with
   every change of the sound.
4. Where a word's clips score higher than that, its threshold moves up to the middle of the gap: no clip that was hit is
   lost, and new background gets some room.

Thresholds that are fitted word by word to the last alarm keep their promise on the recordings they were fitted to, and
break it on others. Short background proves little all the same:
without any alarm in T hours, the true rate is below 3 / T an hour with 95 % confidence.
Legend: K words.
"""

from collections.abc import Sequence

import numpy as np

from kws_s5.eval.stream_scores import Track, events_at
from kws_s5.listening.events import Event, SpotterConfig
from kws_s5.listening.metrics import TOLERANCE

FLOOR = 0.3
ABOVE = 0.2  # log odds above the highest alarm where none is allowed: behind another silence it scores some 0.1 more
LEAST = 20  # alarms that the line goes through, where there are so many
SLOPE = 0.5  # log odds in which alarms fall to 1/e, before any was heard; counts as one alarm
STEP = 0.05  # log odds
HIGHEST = 12.0  # log odds; beyond, a threshold cannot be reached


def calibrate(
    backgrounds: Sequence[Track],
    words: Track | None,
    max_false_alarms_per_hour: float,
    config: SpotterConfig,
    *,
    floor: float = FLOOR,
) -> dict[str, float]:
    """Word -> threshold in [floor, 1].

    Args:
        backgrounds: scores on sound without keywords, one for each version of it; each keeps to the limit.
        words: scores on a stream with keywords at known times; None: step 4 is left out.
        max_false_alarms_per_hour: limit for all words together; 0: none on these recordings.
        floor: no threshold is lower, however quiet the background.
    """
    limit = max_false_alarms_per_hour
    names = backgrounds[0].words
    alarms = [event for track in backgrounds for event in events_at(track, dict.fromkeys(names, floor), config)]
    shifts = _shifts(names, alarms, len(backgrounds), floor)
    hours = sum(track.seconds for track in backgrounds) / 3600
    level = _predicted_level(alarms, shifts, floor, hours, limit)
    room = ABOVE if alarms and any(limit * track.seconds < 3600 for track in backgrounds) else 0.0
    while True:
        thresholds = {name: max(floor, probability(level + shift)) for name, shift in shifts.items()}
        quiet = all(_keeps(track, thresholds, limit, config) for track in backgrounds)
        if quiet or level > HIGHEST:
            break
        level += STEP
    thresholds = {name: max(floor, probability(level + room + shift)) for name, shift in shifts.items()}
    raised = thresholds if words is None else _centred(words, thresholds, config)
    # a higher threshold can change which alarms remain; never let that break the limit
    return raised if all(_keeps(track, raised, limit, config) for track in backgrounds) else thresholds


def hours_needed(max_false_alarms_per_hour: float) -> float:
    """Background without an alarm that would prove the limit with 95 % confidence (Poisson: -ln 0.05 expected)."""
    return -float(np.log(0.05)) / max_false_alarms_per_hour if max_false_alarms_per_hour > 0 else float("inf")


def log_odds(score: float) -> float:
    """ln(p / (1 - p)), at most HIGHEST either way."""
    return float(np.clip(np.log(max(score, 1e-300)) - np.log(max(1.0 - score, 1e-300)), -HIGHEST, HIGHEST))


def probability(log_odds: float) -> float:
    """Its inverse; 1 from HIGHEST on."""
    return float(1.0 / (1.0 + np.exp(-log_odds))) if log_odds < HIGHEST else 1.0


def _shifts(names: Sequence[str], alarms: Sequence[Event], n_versions: int, floor: float) -> dict[str, float]:
    """Log odds that each word's threshold stands above the common level."""
    counts = np.array([sum(event.label == name for event in alarms) for name in names]) / n_versions  # (K,)
    scores = np.sort([log_odds(event.score) for event in alarms])[::-1]
    top = max(LEAST // 2, len(scores) // 3)
    slope = _slope(scores[:top], scores[top] if len(scores) > top else log_odds(floor))
    return dict(zip(names, (slope * np.log((counts + 0.5) / (counts.mean() + 0.5))).tolist(), strict=True))


def _predicted_level(
    alarms: Sequence[Event], shifts: dict[str, float], floor: float, hours: float, limit: float
) -> float:
    """The common level at which the highest alarms, continued exponentially, come at the limit's rate."""
    scores = np.sort([log_odds(event.score) - shifts[event.label] for event in alarms])[::-1]
    low = log_odds(floor)
    if not len(scores) or limit <= 0:
        return low
    n = int(min(len(scores), max(LEAST, 2 * limit * hours)))
    below = max(scores[n] if len(scores) > n else low, low)
    above = scores[:n][scores[:n] > below]
    if not len(above):
        return low
    return max(low, below + _slope(above, below) * float(np.log(len(above) / (limit * hours))))


def _slope(scores: np.ndarray, below: float) -> float:
    """Mean height above ``below``: likeliest slope of numbers that fall exponentially; SLOPE where there are few."""
    return float((np.clip(scores - below, 0.0, None).sum() + SLOPE) / (len(scores) + 1))


def _keeps(track: Track, thresholds: dict[str, float], limit: float, config: SpotterConfig) -> bool:
    allowed = int(np.floor(limit * track.seconds / 3600 + 1e-9))
    return len(events_at(track, thresholds, config)) <= allowed


def _centred(words: Track, thresholds: dict[str, float], config: SpotterConfig) -> dict[str, float]:
    """Each threshold halfway to the lowest score of its word's hits."""
    events = events_at(words, thresholds, config)
    raised = dict(thresholds)
    for word, least in thresholds.items():
        scores = _hit_scores(words, word, [e for e in events if e.label == word])
        if len(scores):
            raised[word] = max(least, least + 0.5 * (min(scores) - least))
    return raised


def _hit_scores(words: Track, word: str, events: Sequence[Event]) -> list[float]:
    """The best score of each occurrence that was hit."""
    found = []
    for truth in (o for o in words.truth if o.label == word):
        scores = [e.score for e in events if truth.start - TOLERANCE <= e.time <= truth.end + TOLERANCE]
        found += [max(scores)] if scores else []
    return found
