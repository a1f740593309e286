"""kws-data: every fault planted in a folder is found, with advice; a clean folder has none."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from kws_s5.data import cli


def record(
    path: Path, seed: int, *, seconds: float = 0.5, rate: int = 16000, level: float = 0.3, channels: int = 1
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    x = level * np.random.default_rng(seed).uniform(-1, 1, (round(seconds * rate), channels))
    soundfile.write(path, x, rate)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with nothing to mend: 3 words, 60 speakers, noise."""
    for w, word in enumerate(("yes", "no", "up")):
        for i in range(60):
            record(tmp_path / "words" / word / f"{i:04x}_nohash_0.wav", 100 * w + i, seconds=0.12)
    record(tmp_path / "words" / "_background_noise_" / "tap.wav", 999, seconds=2)
    return tmp_path / "words"


def reported(root: Path) -> tuple[int, dict]:
    status = cli.main([str(root), "--json", str(root.parent / "r.json"), "--cache", str(root.parent / "cache")])
    return status, json.loads((root.parent / "r.json").read_text())


def found(report: dict) -> dict[str, dict]:
    return {finding["kind"]: finding for finding in report["findings"]}


def test_a_clean_folder_has_nothing_to_mend(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = reported(root)
    assert status == 0 and report["findings"] == [] and "Nothing to repair" in capsys.readouterr().out
    assert report["clips"] == 180 and report["speakers"] == 60 and report["noises"] == 1
    assert report["rates"] == {"16000": 180} and report["channels"] == {"1": 180}
    assert report["seconds"] == {"shortest": 0.12, "median": 0.12, "longest": 0.12}
    row = report["words"]["yes"]
    assert row["clips"] == 60 == row["train"] + row["validation"] + row["test"] and row["unreadable"] == 0


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("unreadable", "problem"),
        ("silent", "problem"),
        ("two_words", "problem"),
        ("two_splits", "problem"),
        ("duplicate", "advice"),
        ("clipped", "advice"),
        ("short", "advice"),
        ("long", "advice"),
        ("rates", "advice"),
        ("channels", "advice"),
        ("few", "advice"),
        ("imbalance", "advice"),
        ("noise", "advice"),
        ("folder", "advice"),
    ],
)
def test_every_fault_is_found_told_and_weighed(
    root: Path, kind: str, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    yes = root / "yes"
    new = yes / "0000_nohash_9.wav"
    match kind:
        case "unreadable":
            new.write_bytes(b"no sound")
        case "silent":
            record(new, 7, level=1e-4)
        case "two_words":
            shutil.copy(root / "no" / "0000_nohash_0.wav", new)
        case "two_splits":
            for i in range(60):  # one sound under the names of sixty speakers is on every side
                shutil.copy(yes / "0000_nohash_0.wav", yes / f"{i:04x}_nohash_1.wav")
        case "duplicate":
            shutil.copy(yes / "0000_nohash_0.wav", new)
        case "clipped":
            soundfile.write(new, np.sign(np.random.default_rng(0).uniform(-1, 1, 4000)), 16000)
        case "short":
            record(new, 7, seconds=0.05)
        case "long":
            record(new, 7, seconds=3)
        case "rates":
            record(new, 7, rate=44100)
        case "channels":
            record(new, 7, channels=2)
        case "few" | "imbalance":
            for i in range(8, 60):
                (yes / f"{i:04x}_nohash_0.wav").unlink()
        case "noise":
            shutil.rmtree(root / "_background_noise_")
        case "folder":
            (yes / "notes.txt").write_text("not a recording")
    status, report = reported(root)
    finding = found(report)[kind]
    assert finding["level"] == level and status == any(f["level"] == "problem" for f in report["findings"])
    assert finding["text"] and finding["advice"] and finding["text"] in capsys.readouterr().out.replace("\n", " ")
    if kind in ("silent", "clipped", "short", "long", "channels"):
        assert finding["clips"] == ["yes/0000_nohash_9.wav"]


def test_a_rate_is_advised_only_where_most_clips_have_it(tmp_path: Path) -> None:
    for i in range(4):
        record(tmp_path / "half" / "yes" / f"{i}.wav", i, rate=(8000, 44100)[i % 2])
        record(tmp_path / "most" / "yes" / f"{i}.wav", i, rate=(8000, 44100)[i == 0])
    assert "--data.rate" not in found(reported(tmp_path / "half")[1])["rates"]["advice"]
    assert "--data.rate 8000 " in found(reported(tmp_path / "most")[1])["rates"]["advice"]


def test_few_clips_held_out_are_told_before_training(tmp_path: Path) -> None:
    for i in range(60):
        record(tmp_path / "yes" / f"{i:04x}_nohash_0.wav", i)
    report = reported(tmp_path)[1]
    n = report["words"]["yes"]["test"]
    assert 0 < n < 20 and found(report)["few_test"]["text"] == f"only {n} clips are held out for test"


@pytest.mark.parametrize("share", ["-1", "nan", "inf", "101"])
def test_impossible_shares_are_refused_by_name(root: Path, share: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([str(root), "--validation-percent", share]) == 2
    assert "data.validation_percent" in capsys.readouterr().err


def test_copies_in_another_format_are_duplicates(root: Path) -> None:
    x, rate = soundfile.read(root / "yes" / "0000_nohash_0.wav", dtype="int16")
    soundfile.write(root / "yes" / "0000_nohash_5.flac", x, rate)
    assert found(reported(root)[1])["duplicate"]["clips"] == ["yes/0000_nohash_0.wav = yes/0000_nohash_5.flac"]


def test_names_without_speakers_and_shared_speakers_are_told(tmp_path: Path) -> None:
    for i in range(4):
        record(tmp_path / "a" / "yes" / f"{i}.wav", i)
        record(tmp_path / "b" / "yes" / f"me_nohash_{i}.wav", i)
    (tmp_path / "b" / "testing_list.txt").write_text("yes/me_nohash_0.wav\n")
    assert "do not tell" in found(reported(tmp_path / "a")[1])["speakers"]["text"]
    assert found(reported(tmp_path / "b")[1])["shared_speakers"]["clips"] == ["me"]


@pytest.mark.parametrize("folder", ["gone", "empty", "flat"])
def test_folders_that_cannot_be_read_end_with_one_line_and_status_2(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    record(tmp_path / "flat" / "a.wav", 0)
    assert cli.main([str(tmp_path / folder)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1


def test_words_without_a_recording_that_can_be_read_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("go", "empty", "bad"):
        (root / name).mkdir()
    for i in range(5):
        (root / "go" / f"memo{i}.m4a").write_bytes(bytes(100))
    (root / "bad" / "a.wav").write_bytes(b"no sound")
    status, report = reported(root)
    said = found(report)["vanished"]
    assert status == 1 and said["level"] == "problem"
    assert all(part in said["text"] for part in ("go (5 .m4a)", "empty (empty)", "bad (1 unreadable)"))
