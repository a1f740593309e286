"""Streams -> scores -> what a threshold costs: false alarms per hour on background, misses of words, latency.

The model runs once; for every threshold the decisions themselves (listening/events.py) are made anew from its scores,
so that a row of the table is what a spotter with that threshold does, refractory times and all.

Hit, miss and false alarm are defined in listening/metrics.py. A false alarm in the stream with words (another word than
the one that was said, or a word said twice) is a confusion; false alarms per hour count on background alone.
Legend: f frames, K keywords.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kws_s5.bundle import Bundle
from kws_s5.eval.stream_audio import Block
from kws_s5.listening.events import Event, EventFinder, SpotterConfig
from kws_s5.listening.metrics import TOLERANCE, Detection, Occurrence, match, match_by_label
from kws_s5.listening.session import StreamingSession

THRESHOLDS = (*np.arange(0.05, 0.96, 0.05).round(2).tolist(), 0.97, 0.98, 0.99, 0.995, 0.999)
ALMOST = 0.95  # confidence of an upper limit


@dataclass(frozen=True)
class Track:
    """Scores of the keywords over a stream, and what was said in it."""

    words: tuple[str, ...]
    scores: np.ndarray  # (f, K) float32
    times: np.ndarray  # (f,) seconds
    frame_rate: float  # Hz
    seconds: float
    truth: tuple[Occurrence, ...]


def listen(bundle: Bundle, blocks: Iterable[Block], rate: float, words: Sequence[str]) -> Track:
    """Runs the model once over a stream."""
    session = StreamingSession(bundle, rate)
    columns = [bundle.labels.index(word) for word in words]
    scores, times, truth = [np.zeros((0, len(words)), np.float32)], [np.zeros(0)], []
    for block in blocks:
        frames = session.push(block.waveform)
        scores.append(frames.posteriors[0][:, columns].astype(np.float32))
        times.append(frames.times)
        truth += block.words
    return Track(
        tuple(words), np.concatenate(scores), np.concatenate(times), session.frame_rate, session.seconds, tuple(truth)
    )


def events_at(track: Track, thresholds: Mapping[str, float], config: SpotterConfig) -> list[Event]:
    """What a spotter with these thresholds reports on the stream."""
    finder = EventFinder(track.words, [thresholds[word] for word in track.words], track.frame_rate, config)
    return finder.push(track.scores, track.times) + finder.finish()


def row_at(background: Track, words: Track, thresholds: Mapping[str, float], config: SpotterConfig) -> dict:
    """One row of the operating table, with JSON values: errors, their rates and limits, latency in ms."""
    alarms = events_at(background, thresholds, config)
    heard = events_at(words, thresholds, config)
    found = match(map(_detection, heard), words.truth)
    n, hours = len(words.truth), background.seconds / 3600
    late = latencies(heard, words.truth)
    return {
        "hits": len(found.hits),
        "misses": n - len(found.hits),
        "words": n,
        "miss_rate": (n - len(found.hits)) / n if n else None,
        "false_alarms": len(alarms),
        "false_alarms_per_hour": len(alarms) / hours,
        "false_alarms_per_hour_upper": alarm_limit(len(alarms)) / hours,
        "confusions": len(found.false_alarms),
        "latency_ms": None
        if not late
        else {"median": 1000 * float(np.median(late)), "p95": 1000 * float(np.percentile(late, 95))},
    }


def sweep(
    background: Track, words: Track, config: SpotterConfig, thresholds: Sequence[float] = THRESHOLDS
) -> list[dict]:
    """Rows for one threshold common to all words, rising."""
    return [{"threshold": t, **row_at(background, words, dict.fromkeys(words.words, t), config)} for t in thresholds]


def by_word(background: Track, words: Track, thresholds: Mapping[str, float], config: SpotterConfig) -> list[dict]:
    """A row for each word: threshold, how often it was said, misses, false alarms on background."""
    alarms = [event.label for event in events_at(background, thresholds, config)]
    found = match_by_label([_detection(e) for e in events_at(words, thresholds, config)], words.truth)
    rows = []
    for word in words.words:
        n = found[word].n_occurrences if word in found else 0
        hits = len(found[word].hits) if word in found else 0
        rows.append(
            {
                "word": word,
                "threshold": thresholds[word],
                "words": n,
                "misses": n - hits,
                "miss_rate": (n - hits) / n if n else None,
                "false_alarms": alarms.count(word),
                "false_alarms_per_hour": alarms.count(word) * 3600 / background.seconds,
                "confusions": len(found[word].false_alarms) if word in found else 0,
            }
        )
    return rows


def alarm_limit(n: int) -> float:
    """Expected number of false alarms that, with 95 % confidence, is not exceeded when n were counted (Poisson)."""
    from scipy.stats import chi2

    return float(chi2.ppf(ALMOST, 2 * (n + 1)) / 2)


def latencies(events: Sequence[Event], truth: Sequence[Occurrence]) -> list[float]:
    """Seconds from the end of a word to its decision, for the words that were hit; negative: decided while spoken."""
    late = []
    for word in truth:
        times = [
            e.time for e in events if e.label == word.label and word.start - TOLERANCE <= e.time <= word.end + TOLERANCE
        ]
        late += [min(times) - word.end] if times else []
    return late


def _detection(event: Event) -> Detection:
    return Detection(event.label, event.time, event.score)
