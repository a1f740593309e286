"""A file appears whole or not at all."""

import json
import os
from pathlib import Path

import pytest

from kws_s5.atomic import replacing, write_json


def test_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"a": 1})
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(target.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_nan_is_refused_in_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert os.listdir(tmp_path) == []


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", 1)
    finally:
        os.umask(old)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_written_is_told_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "folder", tmp_path / "file" / "a.json", tmp_path / "pipe", Path("/proc/a.json")):
        with pytest.raises(OSError) as caught:  # noqa: PT011 (which one depends on the system)
            write_json(target, 1)
        assert caught.value.filename == str(target) and caught.value.strerror
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "pipe"] and (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "pipe").is_fifo()
