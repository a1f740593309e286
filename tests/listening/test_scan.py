"""kws-scan as its users call it: formats, exit status, bad files, processes, saved hits."""

import csv
import io
import json

import numpy as np
import pytest
import soundfile

from kws_s5.audio.files import load_audio, save_wav
from kws_s5.listening.events import Event
from kws_s5.listening.hits import HitSaver
from kws_s5.listening.scan import different_names
from kws_s5.listening.scan_cli import main
from kws_s5.listening.spotter import KeywordSpotter

WORDS = [("low", 1.0), ("high", 2.5), ("low", 6.2)]


@pytest.fixture
def model(tone_bundle, tmp_path):
    tone_bundle.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def file(tone_stream, tmp_path):
    """Eight seconds: two blocks."""
    save_wav(tmp_path / "talk.wav", tone_stream(WORDS, seconds=8), 16000)
    return tmp_path / "talk.wav"


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_table_names_every_word_and_its_time(model, file, capsys) -> None:
    status, out, err = run(capsys, file, "--model", model)
    lines = out.splitlines()
    assert status == 0 and lines[0].split() == ["start", "end", "score", "word", "file"]
    assert [line.split()[3] for line in lines[1:]] == ["low", "high", "low"]
    assert lines[3].split()[0].startswith("0:00:06.") and "3 found in 0:00:08.00 of 1 recording" in err


def test_json_and_csv_hold_the_same(model, file, capsys, tmp_path) -> None:
    status, out, _ = run(capsys, file, "--model", model, "--format", "json", "--quiet")
    (entry,) = json.loads(out)["files"]
    assert status == 0 and entry["rate"] == 16000 and entry["seconds"] == 8 and "error" not in entry
    status, _, err = run(capsys, file, "--model", model, "--format", "csv", "--out", tmp_path / "found.csv", "--quiet")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "found.csv").read_text())))
    assert status == 0 and err == "" and [row["word"] for row in rows] == ["low", "high", "low"]
    for event, row, (_, start) in zip(entry["events"], rows, WORDS, strict=True):
        assert [float(row[c]) for c in ("start", "end", "score")] == [event[c] for c in ("start", "end", "score")]
        assert abs(event["start"] - start) < 0.15 and event["start"] < event["end"] <= event["decided"]


def test_audacity_labels_and_subtitles(model, file, capsys) -> None:
    _, out, _ = run(capsys, file, "--model", model, "--format", "audacity")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[2].split()[0] for row in rows] == ["low", "high", "low"]
    assert all(float(row[0]) < float(row[1]) for row in rows)
    _, out, _ = run(capsys, file, "--model", model, "--format", "srt")
    blocks = out.strip().split("\n\n")
    assert [block.split("\n")[0] for block in blocks] == ["1", "2", "3"]
    start, arrow, end = blocks[2].split("\n")[1].split()
    assert arrow == "-->" and start.startswith("00:00:06,") and start < end


def test_the_exit_status_tells_found_not_found_and_mistakes(model, file, capsys, tmp_path) -> None:
    assert run(capsys, file, "--model", model, "--keywords", "high,low")[0] == 0
    assert run(capsys, file, "--model", model, "--threshold", "1.0")[0] == 1
    status, out, err = run(capsys, file, "--model", model, "--keywords", "hi")
    assert status == 2 and err.count("\n") == 1 and "knows high, low" in err
    assert run(capsys, tmp_path / "none.wav", "--model", model)[0] == 2
    (tmp_path / "empty").mkdir()
    assert "holds no recordings" in run(capsys, tmp_path / "empty", "--model", model)[2]
    assert "--model" in run(capsys, file, "--model", "no-such")[2] or run(capsys, file, "--model", "no-such")[0] == 2
    with pytest.raises(SystemExit) as end:
        main(["--format", "xml", str(file)])
    assert end.value.code == 2


def test_a_bad_file_does_not_hold_up_the_others(model, file, capsys, tmp_path) -> None:
    (tmp_path / "bad.wav").write_bytes(b"RIFF nonsense")
    status, out, err = run(capsys, tmp_path / "bad.wav", file, "--model", model, "--format", "json")
    bad, good = json.loads(out)["files"]
    assert status == 2 and "bad.wav" in bad["error"] and len(good["events"]) == 3 and "bad.wav" in err


def test_a_folder_of_several_rates_and_formats_in_processes(model, tone_stream, capsys, tmp_path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    for name, rate in [("a.wav", 8000), ("b.flac", 44100), ("c.ogg", 48000)]:
        x = tone_stream(WORDS, seconds=8, rate=rate)
        soundfile.write(folder / name, np.stack([x, x], 1), rate)
    (folder / "notes.txt").write_text("not sound")
    status, out, _ = run(capsys, folder, "--model", model, "--format", "json", "--processes", "2")
    files = json.loads(out)["files"]
    assert status == 0 and [f["rate"] for f in files] == [8000, 44100, 48000]
    assert [[e["word"] for e in f["events"]] for f in files] == [["low", "high", "low"]] * 3


def test_label_files_of_several_recordings_go_to_a_folder(model, file, capsys, tmp_path) -> None:
    status, _, err = run(capsys, file, file, "--model", model, "--format", "srt")
    assert status == 2 and "--out" in err
    assert run(capsys, file, file, "--model", model, "--format", "srt", "--out", tmp_path / "labels")[0] == 0
    assert sorted(p.name for p in (tmp_path / "labels").iterdir()) == ["talk-0.srt", "talk-1.srt"]
    other = file.with_name("other.wav")
    other.write_bytes(file.read_bytes())
    assert run(capsys, file, other, "--model", model, "--format", "srt", "--out", tmp_path / "named")[0] == 0
    assert sorted(p.name for p in (tmp_path / "named").iterdir()) == ["other.srt", "talk.srt"]


@pytest.mark.parametrize("format", ["srt", "audacity"])
def test_a_folder_of_results_replaces_its_own_files_only(model, file, tmp_path, capsys, format) -> None:
    other, out = file.with_name("other.wav"), tmp_path / "out"
    other.write_bytes(file.read_bytes())
    for _ in range(2):  # again is no mistake
        assert run(capsys, file, other, "--model", model, "--format", format, "--out", out)[0] == 0
    notes = out / ("talk.srt" if format == "srt" else "talk.txt")
    notes.write_text("what was said\n")
    status, _, err = run(capsys, file, other, "--model", model, "--format", format, "--out", out)
    assert status == 2 and "something else" in err and notes.read_text() == "what was said\n"


def test_every_recording_has_a_name_of_its_own() -> None:
    assert different_names(["a-1.wav", "a.wav", "b/a.wav", "c/a.wav"]) == ["a-1", "a-0", "a-2", "a-3"]
    long = "\u00e4" * 125
    names = different_names([f"{long}1.wav", f"{long}2.wav", "short.wav"])
    assert len(set(names)) == 3 and names[2] == "short" and all(len(name.encode()) <= 170 for name in names)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--out", "{file}"], "is one of the recordings"),
        (["--out", "{folder}"], "is a folder; name a file"),
        (["--save-hits", "{file}"], "is a file; name a folder"),
        (["--margin", "nan"], "--margin must be 0 to 60"),
        (["--margin", "1e9"], "--margin must be 0 to 60"),
        (["--out", "{file}/found.txt"], "Not a directory"),
    ],
)
def test_results_never_cost_a_recording_and_mistakes_are_one_line(model, file, capsys, tmp_path, options, says) -> None:
    before = file.read_bytes()
    status, _, err = run(
        capsys, file, "--model", model, *(option.format(file=file, folder=tmp_path) for option in options)
    )
    assert status == 2 and says in err and err.count("\n") == 1
    assert file.read_bytes() == before


def test_hits_are_cut_around_the_word(model, file, capsys, tmp_path) -> None:
    status, out, _ = run(capsys, file, "--model", model, "--format", "json", "--save-hits", tmp_path / "hits")
    (entry,) = json.loads(out)["files"]
    whole = load_audio(file).waveform
    for name, event, (_, start) in zip(entry["hits"], entry["events"], WORDS, strict=True):
        cut = load_audio(name)
        assert cut.rate == 16000 and cut.seconds == pytest.approx(0.6, abs=1e-3)  # as the training clips
        assert f"/{event['word']}/talk_nohash_" in name
        begin = round((0.5 * (event["start"] + event["end"]) - 0.3) * 16000)
        shift = min(range(begin - 200, begin + 200), key=lambda i: np.abs(whole[i : i + 9600] - cut.waveform).sum())
        assert np.abs(whole[shift : shift + 9600] - cut.waveform).max() < 1e-4
        assert begin / 16000 < start + 0.1  # the word is in it
    short = run(capsys, file, "--model", model, "--save-hits", tmp_path / "short", "--margin", "0.05")
    assert short[0] == 0 and len(list((tmp_path / "short").rglob("*.wav"))) == 3


def test_the_past_kept_for_hits_is_bounded(tone_bundle, tmp_path) -> None:
    saver = HitSaver(tmp_path, "long", 8000, clip=1.0)
    for _ in range(200):
        saver.push(np.zeros(8000, np.float32), [])
        assert saver._kept <= 8000 * 6
    assert saver.finish() == []


def test_models_of_whole_clips_say_so(tone_bundle, tone_stream, file, capsys, tmp_path) -> None:
    from dataclasses import replace

    from kws_s5.config import ClassHead

    config = replace(tone_bundle.config, model=replace(tone_bundle.config.model, head=ClassHead()))
    bundle = replace(tone_bundle, config=config)
    bundle.save(tmp_path / "whole.safetensors")
    status, out, err = run(capsys, file, "--model", tmp_path / "whole.safetensors")
    assert status == 0 and "note: this model (trained without frame decisions)" in err
    assert {line.split()[3] for line in out.splitlines()[1:]} == {"low", "high"}
    assert list(KeywordSpotter(bundle).find(tone_stream([], seconds=2), 16000)) == []


def test_hits_stay_in_their_folder_whatever_a_model_calls_its_words(tmp_path) -> None:
    saver = HitSaver(tmp_path / "hits", "a", 8000)
    for i, label in enumerate(("../up", str(tmp_path / "absolute"), "..", "yes")):
        saver.push(np.zeros(8000, np.float32), [])
        saver.finish([Event(label, i + 0.2, i + 0.5, 0.9, i + 0.6)])
    assert [path.name for path in tmp_path.iterdir()] == ["hits"]
    assert len(list((tmp_path / "hits").glob("*/*.wav"))) == 4 and (tmp_path / "hits" / "yes").is_dir()


def test_a_model_that_gives_no_numbers_is_one_line_and_status_2(tone_bundle, file, capsys, tmp_path) -> None:
    tone_bundle.model.head.decoder.weight.data.fill_(3e38)
    tone_bundle.save(tmp_path / "sick.safetensors")
    status, _, err = run(capsys, file, "--model", tmp_path / "sick.safetensors", "--quiet")
    assert status == 2 and "NaN or infinity instead of scores" in err and err.count("\n") == 1
