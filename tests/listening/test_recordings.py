"""kws-scan on folders, outputs and texts of strangers: nothing left out in silence, nothing raw, nothing lost."""

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from kws_s5.audio import ffmpeg
from kws_s5.audio.files import load_audio, save_wav
from kws_s5.listening import formats
from kws_s5.listening.events import Event
from kws_s5.listening.scan import FileResult
from kws_s5.listening.scan_cli import main

WORDS = [("low", 1.0), ("high", 2.5)]


@pytest.fixture
def model(tone_bundle, tmp_path):
    tone_bundle.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def calls(tone_stream, tmp_path):
    (tmp_path / "calls" / "day1").mkdir(parents=True)
    save_wav(tmp_path / "calls" / "day1" / "a.wav", tone_stream(WORDS, seconds=4), 16000)
    return tmp_path / "calls"


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_what_a_folder_holds_beside_recordings_is_told(model, calls, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ffmpeg, "installed", lambda: "")
    (tmp_path / "nas").mkdir()
    save_wav(tmp_path / "nas" / "b.wav", np.zeros(9000, np.float32), 16000)
    (calls / "nas").symlink_to(tmp_path / "nas")
    for name in ("memo.m4a", "note.webm", "readme.txt"):
        (calls / "day1" / name).write_bytes(b"x")
    status, out, err = run(capsys, calls, "--model", model)
    assert status == 2 and "not scanned: " in err and "1 .m4a" in err and "1 .webm" in err and "1 linked folder" in err
    assert "txt" not in err and [line.split()[3] for line in out.splitlines()[1:]] == ["low", "high"]
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "memo.m4a").write_bytes(b"x")
    status, _, err = run(capsys, tmp_path / "only", "--model", model)
    assert status == 2 and "1 .m4a; install ffmpeg, or convert" in err and err.count("\n") == 1


def test_hidden_files_are_no_recordings(model, calls, capsys) -> None:
    (calls / ".Trash-1000").mkdir()
    for path in (calls / "day1" / "._a.wav", calls / ".Trash-1000" / "b.wav"):
        path.write_bytes(b"\0\5\26\7")
    status, _, err = run(capsys, calls, "--model", model)
    assert status == 0 and "2 found in 0:00:04.00 of 1 recording\n" in err


def test_broken_links_and_pipes_in_folders_are_errors(model, calls, capsys) -> None:
    (calls / "day1" / "broken.wav").symlink_to("gone.wav")
    os.mkfifo(calls / "day1" / "pipe.wav")
    status, out, err = run(capsys, calls, "--model", model)
    assert status == 2 and "broken.wav" in err and "pipe.wav" in err and len(out.splitlines()) == 3


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_folders_without_permission_are_told(model, calls, capsys) -> None:
    (calls / "locked").mkdir(mode=0)
    status, _, err = run(capsys, calls, "--model", model)
    (calls / "locked").chmod(0o700)
    assert status == 2 and "1 folder without permission" in err


def test_a_cut_recording_is_searched_as_far_as_it_goes_and_told(model, calls, capsys) -> None:
    path = calls / "day1" / "a.wav"
    path.write_bytes(path.read_bytes()[: 44 + 2 * 60_000])
    status, out, err = run(capsys, calls, "--model", model)
    assert status == 2 and len(out.splitlines()) == 3 and "cut short, 120000 of 128000 bytes" in err


@pytest.mark.parametrize(("gain", "told"), [(0.0, "digital silence"), (0.001, "very quiet"), (40.0, "clipped")])
def test_levels_at_which_words_go_unheard_are_told_once_a_file(model, calls, capsys, gain, told) -> None:
    x = load_audio(calls / "day1" / "a.wav").waveform
    save_wav(calls / "day1" / "a.wav", np.clip(gain * x, -1, 1), 16000)
    status, _, err = run(capsys, calls, "--model", model)
    assert status in (0, 1) and err.count("note: ") == 1 and told in err


def test_outputs_never_replace_the_model_or_a_recording(model, calls, capsys) -> None:
    for out in (model, calls / "day1" / "a.wav"):
        before = out.read_bytes()
        status, _, err = run(capsys, calls, "--model", model, "--format", "csv", "--out", out)
        assert status == 2 and "name another file" in err and out.read_bytes() == before


def test_an_out_that_cannot_be_written_is_found_before_listening(model, calls, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("kws_s5.listening.scan.scan_file", lambda *a, **k: pytest.fail("listened"))
    (tmp_path / "file").write_text("x")
    status, _, err = run(capsys, calls, "--model", model, "--out", tmp_path / "file" / "found.txt")
    assert status == 2 and "--out" in err and err.count("\n") == 1
    if os.path.exists("/proc/self"):
        status, _, err = run(capsys, calls, "--model", model, "--save-hits", "/proc/self/hits")
        assert status == 2 and "--save-hits /proc/self/hits: cannot be written" in err


HOSTILE = ["\x1b[2Jgone", "a\nb", "a\r\n2\n00:00:00,000 --> 00:00:01,000", "a\tb", "\u202eabc", "\ud800", "\u2028x"]


@pytest.mark.parametrize("label", [*HOSTILE, "=cmd|'/C calc'!A0", "+1", "@SUM(A1)", "-2"])
@pytest.mark.parametrize("format", ["table", "csv", "audacity", "srt", "json"])
def test_labels_and_names_of_strangers_stay_on_their_line(label: str, format: str) -> None:
    event = Event("plain", 0.1, 0.5, 0.9, 0.6)
    plain = formats.as_text([FileResult("f.wav", (event,))], format)
    text = formats.as_text([FileResult(f"{label}.wav", (Event(label, 0.1, 0.5, 0.9, 0.6),))], format)
    assert len(text.splitlines()) == len(plain.splitlines())
    assert all(c.isprintable() or c in "\n\t" for c in text) and text.count("\t") == plain.count("\t")
    text.encode()
    if format == "json":
        assert json.loads(text)["files"][0]["events"][0]["word"] == label
    if format == "csv":
        row = list(csv.reader(io.StringIO(text)))[1]
        assert not any(cell[0] in "=+-@\t\r" for cell in row)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_an_output_that_is_not_utf8_escapes_what_it_cannot_hold(model, calls, encoding: str, format: str) -> None:
    (calls / "day1" / "a.wav").rename(calls / "Привет.wav")
    program = "import sys; from kws_s5.listening.scan_cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, calls, "--model", model, "--format", format],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert done.returncode == 0 and b"\\u041f" in done.stdout and b"Traceback" not in done.stderr
