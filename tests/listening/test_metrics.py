"""Detections in a stream, against cases counted by hand and a brute-force count."""

import numpy as np
import pytest

from kws_s5.listening.metrics import (
    Detection,
    Occurrence,
    det_curve,
    match,
    match_by_label,
    operating_table,
    pool,
    threshold_for,
)

TRUTH = [Occurrence("yes", 1.0, 1.5), Occurrence("no", 3.0, 3.4), Occurrence("yes", 6.0, 6.5)]


def test_hits_misses_and_false_alarms_by_hand():
    detections = [
        Detection("yes", 1.6, 0.9),  # hit
        Detection("yes", 3.2, 0.8),  # another word is said here: false alarm
        Detection("no", 9.0, 0.3),  # nothing is said here: false alarm
    ]
    matching = match(detections, TRUTH)
    assert matching.hits.tolist() == [0.9] and matching.false_alarms.tolist() == [0.8, 0.3]
    rows = operating_table(matching, 1800.0, thresholds=[0.0, 0.5, 0.85, 0.95])
    assert [r["false_alarms_per_hour"] for r in rows] == [4.0, 2.0, 0.0, 0.0]
    assert [r["miss_rate"] for r in rows] == pytest.approx([2 / 3, 2 / 3, 2 / 3, 1.0])
    assert rows[0]["hits"] == 1 and rows[0]["misses"] == 2 and rows[0]["false_alarms"] == 2


@pytest.mark.parametrize("time, hit", [(0.89, False), (0.9, True), (1.5, True), (1.6, True), (1.61, False)])
def test_tolerance_reaches_as_far_as_it_says(time, hit):
    matching = match([Detection("yes", time, 1.0)], [Occurrence("yes", 1.0, 1.5)], tolerance=0.1)
    assert len(matching.hits) == hit and len(matching.false_alarms) == (not hit)


def test_a_second_detection_of_one_utterance_is_a_false_alarm_and_the_better_one_is_the_hit():
    matching = match([Detection("yes", 1.2, 0.6), Detection("yes", 1.5, 0.9)], TRUTH)
    assert matching.hits.tolist() == [0.9] and matching.false_alarms.tolist() == [0.6]


def test_two_quick_utterances_take_one_detection_each():
    truth = [Occurrence("yes", 1.0, 1.4), Occurrence("yes", 1.5, 1.9)]
    matching = match([Detection("yes", 1.9, 0.9), Detection("yes", 1.45, 0.5)], truth)
    assert sorted(matching.hits) == [0.5, 0.9] and not len(matching.false_alarms)


def test_a_long_occurrence_is_found_behind_a_later_short_one():
    truth = [Occurrence("yes", 0.0, 10.0), Occurrence("yes", 1.0, 1.2)]
    assert len(match([Detection("yes", 9.0, 1.0)], truth).hits) == 1


def test_a_threshold_keeps_detections_that_reach_it_exactly():
    rows = operating_table(match([Detection("yes", 1.2, 0.5)], TRUTH), 10.0, thresholds=[0.5])
    assert rows[0]["hits"] == 1


def test_one_matching_for_all_thresholds_equals_matching_at_each_threshold():
    rng = np.random.default_rng(0)
    truth = [Occurrence("ab"[i % 2], 2.0 * i, 2.0 * i + 0.5) for i in range(50)]
    detections = [
        Detection("ab"[rng.integers(2)], t, s) for t, s in zip(rng.uniform(0, 100, 300), rng.random(300), strict=True)
    ]
    for row in operating_table(match(detections, truth), 100.0, thresholds=np.linspace(0, 1, 11)):
        kept = match([d for d in detections if d.score >= row["threshold"]], truth)
        assert (row["hits"], row["false_alarms"]) == (len(kept.hits), len(kept.false_alarms))


def test_hits_equal_a_count_of_occurrences_that_something_touched():
    rng = np.random.default_rng(1)
    truth = [Occurrence("w", 3.0 * i, 3.0 * i + 0.5) for i in range(40)]  # windows of 1.5 s never overlap
    detections = [Detection("w", t, s) for t, s in zip(rng.uniform(0, 120, 90), rng.random(90), strict=True)]
    touched = sum(any(o.start - 0.5 <= d.time <= o.end + 0.5 for d in detections) for o in truth)
    matching = match(detections, truth)
    assert len(matching.hits) == touched and len(matching.false_alarms) == 90 - touched


def test_det_curve_trades_false_alarms_for_misses_and_ends_in_silence():
    rng = np.random.default_rng(2)
    detections = [Detection("yes", t, s) for t, s in zip(rng.uniform(0, 8, 40), rng.random(40), strict=True)]
    false_alarms, misses, thresholds = det_curve(match(detections, TRUTH), 8.0)
    assert (np.diff(false_alarms) <= 0).all() and (np.diff(misses) >= 0).all() and (np.diff(thresholds) > 0).all()
    assert (false_alarms[-1], misses[-1]) == (0.0, 1.0)


def test_threshold_for_is_the_smallest_that_keeps_to_the_limit():
    matching = match([Detection("x", t, s) for t, s in [(1, 0.2), (2, 0.4), (3, 0.6)]], TRUTH)
    for limit, expected in [(0, 0), (1, 1), (1.9, 1), (2, 2), (3, 3), (10, 3)]:
        threshold = threshold_for(matching, 3600.0, limit)
        assert operating_table(matching, 3600.0, thresholds=[threshold])[0]["false_alarms"] == expected
    assert threshold_for(matching, 3600.0, 3) == 0.0


def test_words_do_not_influence_each_other_and_pool_adds_them_up():
    detections = [Detection("yes", 1.2, 0.7), Detection("no", 3.1, 0.9), Detection("no", 6.2, 0.4)]
    whole, parts = match(detections, TRUTH), match_by_label(detections, TRUTH)
    assert operating_table(pool(parts.values()), 10.0) == operating_table(whole, 10.0)
    assert parts["yes"].n_occurrences == 2 and parts["no"].n_occurrences == 1


def test_background_alone_has_false_alarms_and_no_miss_rate():
    rows = operating_table(match([Detection("yes", 5.0, 0.5)], []), 7200.0)
    assert rows[0]["false_alarms_per_hour"] == 0.5 and rows[0]["miss_rate"] is None
    assert operating_table(match([], []), 10.0) == []
