"""kws-eval --stream and kws-calibrate on a model that knows two tones."""

import json

import numpy as np
import pytest

from kws_s5.audio import save_wav
from kws_s5.bundle import load
from kws_s5.eval.calibrate import a_little_above, calibrate, hours_needed
from kws_s5.eval.calibrate_cli import main as calibrate_main
from kws_s5.eval.cli import main as eval_main
from kws_s5.eval.stream_audio import Block
from kws_s5.eval.stream_scores import Track, alarm_limit, events_at, listen, row_at, sweep
from kws_s5.events import SpotterConfig
from kws_s5.spotter import KeywordSpotter
from kws_s5.stream_metrics import Occurrence

CONFIG = SpotterConfig(smoothing=0.0, warmup=0.0)


def track(peaks, *, seconds=3600.0, truth=()):
    """Scores of words a and b with short peaks (word, time, height)."""
    times = np.arange(1, round(seconds * 10) + 1) / 10
    scores = np.zeros((len(times), 2), np.float32)
    for word, time, height in peaks:
        scores[round(time * 10) - 1, "ab".index(word)] = height
    return Track(("a", "b"), scores, times, 10.0, seconds, tuple(Occurrence(w, t - 0.3, t) for w, t in truth))


def test_a_row_counts_hits_misses_alarms_confusions_and_latency() -> None:
    background = track([("a", 10, 0.9), ("b", 20, 0.6)], seconds=1800)
    words = track([("a", 5.2, 0.8), ("b", 10, 0.7), ("a", 20, 0.9), ("b", 30.1, 0.9)],
                  truth=[("a", 5), ("a", 10), ("b", 30), ("b", 40)], seconds=60)
    row = row_at(background, words, {"a": 0.5, "b": 0.65}, CONFIG)
    assert (row["hits"], row["misses"], row["words"], row["miss_rate"]) == (2, 2, 4, 0.5)
    assert row["false_alarms"] == 1 and row["false_alarms_per_hour"] == 2.0 and row["confusions"] == 2
    assert row["latency_ms"]["median"] == pytest.approx(250.0)  # decided one frame after the peaks at 5.2 and 30.1
    rows = sweep(background, words, CONFIG, (0.5, 0.85, 1.0))
    assert [r["false_alarms"] for r in rows] == [2, 1, 0] and [r["hits"] for r in rows] == [2, 1, 0]
    assert rows[2]["latency_ms"] is None


def test_the_upper_limit_is_the_rule_of_three() -> None:
    assert alarm_limit(0) == pytest.approx(3.0, abs=0.01) and alarm_limit(10) == pytest.approx(16.96, abs=0.01)
    assert hours_needed(0.5) == pytest.approx(6.0, abs=0.01) and hours_needed(0.0) == float("inf")


@pytest.mark.parametrize("allowed", [0, 1, 2, 5])
def test_calibration_keeps_to_the_limit_and_drops_the_weakest_alarms(allowed) -> None:
    background = track([("a", 10, 0.9), ("a", 20, 0.5), ("b", 30, 0.8), ("b", 40, 0.35)])
    thresholds = calibrate([background], None, allowed, CONFIG)
    alarms = events_at(background, thresholds, CONFIG)
    assert len(alarms) <= allowed
    scores = sorted((e.score for e in alarms), reverse=True)
    assert scores == pytest.approx([0.9, 0.8, 0.5, 0.35][:allowed])
    assert all(0.3 <= t <= 1 for t in thresholds.values())


def test_thresholds_stand_in_the_gap_below_the_words() -> None:
    background = track([("a", 10, 0.4)])
    words = track([("a", 5, 0.8), ("a", 15, 0.9), ("a", 25, 0.35)], truth=[("a", 5), ("a", 15), ("a", 25)], seconds=60)
    thresholds = calibrate([background], words, 0.0, CONFIG)
    assert thresholds["a"] == pytest.approx(0.5 * (a_little_above(0.4) + 0.8)) and thresholds["b"] == 0.3


def test_a_little_above_is_a_step_in_log_odds() -> None:
    assert a_little_above(0.5) == pytest.approx(0.5498, abs=1e-4) and 0.9 < a_little_above(0.9) < 0.92
    assert a_little_above(1.0) == 1.0


def test_alarms_that_others_had_hidden_are_found_too() -> None:
    """Within the refractory time the second, higher peak shows only when the first is excluded."""
    background = track([("a", 10.0, 0.5), ("a", 10.3, 0.7), ("a", 10.6, 0.9)])
    assert calibrate([background], None, 0.0, CONFIG)["a"] == pytest.approx(a_little_above(0.9))


def test_every_version_of_the_background_keeps_to_the_limit() -> None:
    versions = [track([("a", 10.0, 0.5)]), track([("a", 10.0, 0.7)]), track([("b", 10.0, 0.6)])]
    assert calibrate(versions, None, 0.0, CONFIG) == pytest.approx({"a": a_little_above(0.7), "b": a_little_above(0.6)})


def test_scores_of_a_stream_are_those_of_the_spotter(tone_bundle, tone_stream) -> None:
    x = tone_stream([("low", 1.0), ("high", 3.0)], seconds=5)
    heard = listen(tone_bundle, [Block(piece) for piece in np.split(x, [777, 30000])], 16000, ("high", "low"))
    events = events_at(heard, {"high": 0.5, "low": 0.5}, SpotterConfig())
    expected = list(KeywordSpotter(tone_bundle).find(x, 16000))
    assert [(e.label, e.time) for e in events] == [(e.label, pytest.approx(e.time)) for e in expected]
    assert heard.seconds == 5 and heard.frame_rate == 100


@pytest.fixture
def run(tone_bundle, tone_stream, tmp_path):
    """A run folder and, beside it, words and background for its model."""
    tone_bundle.save(tmp_path / "run" / "model.safetensors")
    for word in ("low", "high"):
        for i in range(4):
            x = tone_stream([(word, 0.1)], seconds=0.6, seed=i)
            save_wav((tmp_path / "words" / word / f"{i:08x}_nohash_0.wav"), x, 16000)
    for i in range(3):
        hum = 0.05 * np.sin(2 * np.pi * (150 + 100 * i) * np.arange(16000 * 5) / 16000)
        save_wav(tmp_path / "talk" / f"{i}.wav", hum, 16000)
    return tmp_path / "run"


def test_the_stream_report_has_every_number_and_both_curves(run, tmp_path, capsys) -> None:
    arguments = [str(run), "--stream", "--data", str(tmp_path / "words"), "--background", str(tmp_path / "talk")]
    assert eval_main([*arguments, "--rate", "16000", "8000"]) == 0
    text = capsys.readouterr().out
    assert "false alarms/h" in text and "8000 Hz" in text and "A hit: " in text
    folder = run / "eval-words"
    assert {p.name for p in folder.iterdir()} >= {"stream.json", "stream_det.png", "stream_roc.png"}
    report = json.loads((folder / "stream.json").read_text())
    assert report["data"] == "8 words of all clips of words in recordings of talk"
    assert str(tmp_path) not in (folder / "stream.json").read_text()  # folders by name, not where they lie
    for row in report["rows"]:
        assert row["own"]["words"] == 8 and row["own"]["miss_rate"] == 0.0
        assert row["own"]["latency_ms"]["median"] < 300 and not row["calibrated"]
        assert [r["word"] for r in row["by_word"]] == ["high", "low"] and row["background_seconds"] > 15
        misses = [r["miss_rate"] for r in row["operating_table"]]
        assert misses[-1] >= misses[10]
    assert eval_main([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"][0] == report["rows"][0]  # the same stream every time


@pytest.mark.parametrize("wrong", [
    ["--max-fa-per-hour", "nan"], ["--max-fa-per-hour", "inf"], ["--max-fa-per-hour", "-1"], ["--floor", "nan"],
    ["--seed", "-1"], ["--snr", "nan"],
])
def test_impossible_limits_are_refused_before_listening(run, capsys, wrong) -> None:
    assert calibrate_main([str(run), *wrong]) == 2
    error = capsys.readouterr().err
    assert wrong[0] in error and error.count("\n") == 1


def test_calibration_is_stored_in_the_model_and_used(run, tmp_path, capsys) -> None:
    before = (run / "model.safetensors").read_bytes()
    arguments = [str(run), "--data", str(tmp_path / "words"), "--background", str(tmp_path / "talk")]
    assert calibrate_main([*arguments, "--dry-run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (run / "model.safetensors").read_bytes() == before and report["false_alarms"] == 0
    assert calibrate_main(arguments) == 0
    text = capsys.readouterr().out
    assert "with 95 % confidence" in text and "6.0 h of background" in text
    bundle = load(run)
    assert bundle.thresholds == report["thresholds"] and bundle.metrics["calibration"]["words"] == 8
    assert KeywordSpotter(bundle).thresholds == [report["thresholds"][word] for word in ("high", "low")]
    assert [p.name for p in run.iterdir()] == ["model.safetensors"]  # nothing temporary is left
    assert str(tmp_path).encode() not in (run / "model.safetensors").read_bytes()


def test_a_folder_with_lists_gives_its_validation_words(run, tmp_path, capsys) -> None:
    words = tmp_path / "words"
    save_wav(words / "other" / "00000003_nohash_0.wav", np.zeros(8000, np.float32), 16000)
    (words / "validation_list.txt").write_text("low/00000000_nohash_0.wav\nhigh/00000001_nohash_0.wav\n")
    (words / "testing_list.txt").write_text("low/00000002_nohash_0.wav\n")
    arguments = [str(run), "--data", str(words), "--background", str(tmp_path / "talk"), "--dry-run", "--json"]
    for split, n in ((), 2), (("--split", "test"), 1), (("--split", "all"), 8):
        assert calibrate_main([*arguments, *split]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["words"] == n, report["data"]


def test_calibration_refuses_what_it_cannot_do(run, tmp_path, capsys) -> None:
    path = run / "model.safetensors"
    arguments = [str(path), "--data", str(tmp_path / "words"), "--background", str(tmp_path / "talk")]
    assert calibrate_main([*arguments[:3], "--out", str(tmp_path / "x.safetensors")]) == 2
    assert "--background" in capsys.readouterr().err
    assert calibrate_main([*arguments, "--max-fa-per-hour", "-1"]) == 2
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    capsys.readouterr()
    assert calibrate_main(arguments) == 2
    assert "checksum" in capsys.readouterr().err and path.read_bytes() == bytes(damaged)
