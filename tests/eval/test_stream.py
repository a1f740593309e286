"""kws-eval --stream and kws-calibrate on a model that knows two tones."""

import json

import numpy as np
import pytest

from kws_s5.audio.files import save_wav
from kws_s5.bundle import load
from kws_s5.eval.calibrate import ABOVE, calibrate, hours_needed, log_odds, probability
from kws_s5.eval.calibrate_cli import main as calibrate_main
from kws_s5.eval.cli import main as eval_main
from kws_s5.eval.stream_audio import Block
from kws_s5.eval.stream_scores import Track, alarm_limit, events_at, listen, row_at, sweep
from kws_s5.listening.events import SpotterConfig
from kws_s5.listening.metrics import Occurrence
from kws_s5.listening.spotter import KeywordSpotter

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
    words = track(
        [("a", 5.2, 0.8), ("b", 10, 0.7), ("a", 20, 0.9), ("b", 30.1, 0.9)],
        truth=[("a", 5), ("a", 10), ("b", 30), ("b", 40)],
        seconds=60,
    )
    row = row_at(background, words, {"a": 0.5, "b": 0.65}, CONFIG)
    assert (row["hits"], row["misses"], row["words"], row["miss_rate"]) == (2, 2, 4, 0.5)
    assert row["false_alarms"] == 1 and row["false_alarms_per_hour"] == 2.0 and row["confusions"] == 2
    assert row["latency_ms"]["median"] == pytest.approx(150.0)  # decided at the peaks, at 5.2 and 30.1
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
    kept = [e.score for e in events_at(background, thresholds, CONFIG)]
    dropped = {0.9, 0.5, 0.8, 0.35} - {round(score, 4) for score in kept}
    assert len(kept) <= allowed and min(kept, default=1.0) > max(dropped, default=0.0) - 1e-6
    assert all(0.3 <= t <= 1 for t in thresholds.values())


def exponential(hours: float, rates: tuple[float, float], *, slope: float = 0.5, seed: int = 0) -> Track:
    """Alarms of words a and b above 0.3, so many an hour, whose heights in log odds fall exponentially."""
    random = np.random.default_rng(seed)
    n = random.poisson(np.array(rates) * hours)
    places = random.choice(round(hours * 1800) - 2, n.sum(), replace=False) * 2 + 2  # seconds, two apart
    heights = [probability(log_odds(0.3) + x) for x in random.exponential(slope, n.sum())]
    return track(list(zip(["a"] * n[0] + ["b"] * n[1], places, heights, strict=True)), seconds=hours * 3600)


@pytest.mark.parametrize("limit", [1.0, 10.0])
def test_thresholds_keep_their_promise_on_other_background(limit) -> None:
    """A quarter of an hour to calibrate on, many hours to be judged by: the mean of ten calibrations."""
    judge, rates = exponential(20.0, (160.0, 40.0), seed=99), []
    for seed in range(10):
        thresholds = calibrate([exponential(0.25, (160.0, 40.0), seed=seed)], None, limit, CONFIG)
        rates.append(len(events_at(judge, thresholds, CONFIG)) / 20.0)
    assert 0.3 * limit < np.mean(rates) < 1.7 * limit, rates


def test_words_that_fire_more_often_get_higher_thresholds() -> None:
    thresholds = calibrate([exponential(1.0, (160.0, 40.0))], None, 10.0, CONFIG)
    assert log_odds(thresholds["a"]) - log_odds(thresholds["b"]) == pytest.approx(0.5 * np.log(4), abs=0.35)
    silent = calibrate([track([("a", 10.0 * i, 0.5 + 0.01 * i) for i in range(1, 30)])], None, 5.0, CONFIG)
    assert silent["a"] > silent["b"] > 0.3  # a word that was never heard is not trusted without end


def test_a_quiet_background_leaves_thresholds_at_the_floor_or_in_the_gap_below_the_words() -> None:
    words = track([("a", 5, 0.8), ("a", 15, 0.9), ("a", 25, 0.25)], truth=[("a", 5), ("a", 15), ("a", 25)], seconds=60)
    for limit in (0.0, 5.0):
        assert calibrate([track([])], None, limit, CONFIG) == {"a": 0.3, "b": 0.3}
        thresholds = calibrate([track([])], words, limit, CONFIG)
        assert thresholds["a"] == pytest.approx(0.5 * (0.3 + 0.8)) and thresholds["b"] == 0.3


def test_without_a_single_alarm_allowed_there_is_room_above_the_highest() -> None:
    thresholds = calibrate([track([("a", 10, 0.4)])], None, 0.0, CONFIG)
    assert log_odds(thresholds["a"]) >= log_odds(0.4) + ABOVE


def test_alarms_that_others_had_hidden_are_found_too() -> None:
    """Within the refractory time the second, higher peak shows only when the first is excluded."""
    background = track([("a", 10.0, 0.5), ("a", 10.3, 0.7), ("a", 10.6, 0.9)])
    assert calibrate([background], None, 0.0, CONFIG)["a"] > 0.9


def test_every_version_of_the_background_keeps_to_the_limit() -> None:
    versions = [track([("a", 10.0, 0.5)]), track([("a", 10.0, 0.7)]), track([("b", 10.0, 0.6)])]
    thresholds = calibrate(versions, None, 0.0, CONFIG)
    assert thresholds["a"] > 0.7 and thresholds["b"] > 0.6
    assert not any(events_at(version, thresholds, CONFIG) for version in versions)


def test_log_odds_and_probability_are_inverse() -> None:
    assert all(probability(log_odds(p)) == pytest.approx(p) for p in (0.01, 0.5, 0.999))
    assert probability(log_odds(1.0)) == 1.0 and probability(log_odds(0.0)) < 1e-5


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


@pytest.mark.parametrize(
    "wrong",
    [
        ["--max-fa-per-hour", "nan"],
        ["--max-fa-per-hour", "inf"],
        ["--max-fa-per-hour", "-1"],
        ["--floor", "nan"],
        ["--seed", "-1"],
        ["--snr", "nan"],
    ],
)
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


def test_thresholds_that_hear_next_to_nothing_are_not_stored(run, tmp_path, capsys) -> None:
    path, talk = run / "model.safetensors", tmp_path / "same"
    before = path.read_bytes()
    talk.mkdir()
    for i, clip in enumerate(sorted((tmp_path / "words").rglob("*.wav"))):  # a background that is all keywords
        (talk / f"{i}.wav").write_bytes(clip.read_bytes())
    arguments = [str(run), "--data", str(tmp_path / "words"), "--background", str(talk), "--max-fa-per-hour", "0"]
    assert calibrate_main(arguments) == 2
    told = capsys.readouterr().err
    assert "nothing stored" in told and "100%" in told and path.read_bytes() == before
    assert calibrate_main([*arguments, "--out", str(tmp_path / "deaf.safetensors")]) == 0
    assert "thresholds stored" in capsys.readouterr().out and path.read_bytes() == before


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


def test_figures_on_the_background_that_chose_the_thresholds_are_not_called_held_out(run, tmp_path, capsys) -> None:
    words, talk, other = (str(tmp_path / name) for name in ("words", "talk", "other"))
    save_wav(tmp_path / "other" / "new.wav", 0.1 * np.ones(16000, np.float32), 16000)

    def told(background: str) -> dict:
        arguments = [str(run), "--data", words, "--background", background, "--stream", "--json"]
        assert eval_main([*arguments, "--out", str(tmp_path / "eval")]) == 0
        return json.loads(capsys.readouterr().out)

    assert told(talk)["held_out"]  # nothing was chosen yet
    assert calibrate_main([str(run), "--data", words, "--background", talk]) == 0
    capsys.readouterr()
    report = told(talk)
    assert not report["held_out"] and "not held out" in report["remarks"][-1]
    assert told(other)["held_out"]
    (tmp_path / "other" / "moved.wav").write_bytes(next((tmp_path / "talk").rglob("*.wav")).read_bytes())
    assert "1 of these 2 recordings" in told(other)["remarks"][-1]  # by its sound, whatever its name
