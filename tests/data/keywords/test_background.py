"""The background of a training holds no keyword that is not marked, whatever tables its folder has."""

from pathlib import Path

import numpy as np
import pytest

from kws_s5.audio.files import save_wav
from kws_s5.data.keywords.background import read_background
from kws_s5.errors import UserError

RATE = 8000.0


def folder(tmp_path: Path, *, transcripts: str = "", words: str = "") -> str:
    for name, seconds in (("a/one.wav", 1.0), ("a/two.wav", 2.0), ("three.wav", 3.0)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_wav(tmp_path / name, np.full(round(seconds * RATE), 0.25, np.float32), RATE)
    for name, text in (("transcripts.tsv", transcripts), ("words.tsv", words)):
        if text:
            (tmp_path / name).write_text(text)
    return str(tmp_path)


def seconds(talk: list, rate: float) -> list[float]:
    return sorted(round(len(t.samples) / rate, 2) for t in talk)


def test_all_recordings_count_at_the_rate_that_is_asked_for(tmp_path: Path) -> None:
    talk, line = read_background(folder(tmp_path), ["yes", "no"], 16000.0)
    assert seconds(talk, 16000.0) == [1.0, 2.0, 3.0]
    assert np.allclose(talk[0].samples[4000:8000] / 32768, 0.25, atol=0.01)
    assert "3 recordings" in line


def test_recordings_whose_text_holds_a_keyword_are_left_out(tmp_path: Path) -> None:
    table = "file\tspeaker\ttext\na/one.wav\tx\tOH NO\na/two.wav\tx\tI know yesterday\nthree.wav\tx\tso yes\n"
    talk, line = read_background(folder(tmp_path, transcripts=table), ["yes", "no"], RATE)
    assert seconds(talk, RATE) == [2.0]
    assert "2 with a keyword" in line


def test_word_times_keep_the_recording_and_mark_the_keyword(tmp_path: Path) -> None:
    table = "file\ttext\na/two.wav\tso yes indeed\n"
    words = (
        "file\tword\tstart\tend\na/two.wav\tso\t0.1\t0.4\na/two.wav\tYES\t0.5\t0.9\na/two.wav\tindeed\t0.9\t1.9\n"
        "a/two.wav\tknow\t1.9\t2.0\n"
    )
    talk, _ = read_background(folder(tmp_path, transcripts=table, words=words), ["yes", "no"], RATE)
    two = next(t for t in talk if len(t.samples) == 2 * RATE)
    assert two.said == ((0.5, 0.9),)
    assert two.places == ((0.1, 0.4),)  # a second-long word is no fragment that could be a command


@pytest.mark.parametrize(
    ("transcripts", "words", "message"),
    [
        ("name\ttext\n", "", "no column 'file'"),
        ("", "file\tword\tstart\tend\na/one.wav\tno\tsoon\t1\n", "numbers of seconds"),
        ("", "file\tword\tstart\tend\na/one.wav\tno\t2\t1\n", "no stretch of time"),
        ("file\ttext\na/one.wav\tno\na/two.wav\tno\nthree.wav\tno\n", "", "3 hold a keyword"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, transcripts: str, words: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_background(folder(tmp_path, transcripts=transcripts, words=words), ["no"], RATE)


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no recordings"):
        read_background(str(tmp_path), ["no"], RATE)


def test_a_recording_that_cannot_be_read_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    where = folder(tmp_path)
    (tmp_path / "broken.wav").write_bytes(b"RIFF nothing")
    talk, line = read_background(where, ["no"], RATE)
    assert len(talk) == 3 and "1 cannot be read" in line
    assert "broken.wav" in capsys.readouterr().err
