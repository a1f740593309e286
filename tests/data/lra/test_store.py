"""Prepared rows, vocabularies and processes: whole or not at all, read-only, nothing unpickled."""

import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from kws_s5.config import LraData
from kws_s5.data.lra import pathfinder_generator
from kws_s5.data.lra.sources import given
from kws_s5.data.lra.store import Prepared, Writer, prepared
from kws_s5.data.lra.vocabulary import EOS, UNK, Vocabulary
from kws_s5.errors import UserError
from kws_s5.processes import mapped


def made(cache: Path, calls: list[int], *, sources: tuple = (), fail: bool = False) -> Prepared:
    def make(folder: Path) -> dict:
        calls.append(1)
        for split in ("train", "validation", "test"):
            writer = Writer(folder, split)
            for n in (3, 0, 5):
                writer.add(n, np.arange(n, dtype=np.uint8))
            if fail:
                raise OSError(28, "No space left on device")
            writer.close()
        return {"note": "made"}

    return prepared(LraData(cache=str(cache)), sources, make)


def test_rows_read_back_and_are_made_once(tmp_path: Path) -> None:
    calls: list[int] = []
    for _ in range(2):
        data = made(tmp_path, calls)
    rows = data.rows["validation"]
    assert len(calls) == 1 and data.meta["note"] == "made"
    assert [rows[i].tolist() for i in range(3)] == [[0, 1, 2], [], [0, 1, 2, 3, 4]]
    assert rows.targets.tolist() == [3, 0, 5]
    with pytest.raises(ValueError, match="read-only"):
        rows[0][0] = 9


def test_other_sources_make_another_folder(tmp_path: Path) -> None:
    calls: list[int] = []
    for changed in (1, 2, 1):
        made(tmp_path, calls, sources=(("file", 10, changed),))
    assert len(calls) == 2


def test_a_damaged_folder_is_made_again(tmp_path: Path) -> None:
    calls: list[int] = []
    made(tmp_path, calls)
    (values,) = (tmp_path / "lra").glob("*/test-values.bin")
    values.write_bytes(b"")
    data = made(tmp_path, calls)
    assert len(calls) == 2 and data.rows["test"][2].tolist() == [0, 1, 2, 3, 4]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be kept there \(No space left on device\)"):
        made(tmp_path, [], fail=True)
    assert not [path for path in (tmp_path / "lra").iterdir() if path.is_dir()]


def test_rows_travel_to_other_processes_by_place(tmp_path: Path) -> None:
    rows = made(tmp_path, []).rows["train"]
    sent = pickle.dumps(rows)
    assert len(sent) < 1000 and pickle.loads(sent)[2].tolist() == [0, 1, 2, 3, 4]


def test_vocabulary_is_ordered_by_frequency_and_ends_texts() -> None:
    vocabulary = Vocabulary.of(["bbbaac", "ba", "z"], min_count=2)
    assert vocabulary.tokens == ("<pad>", "<unk>", "<eos>", "b", "a")
    assert vocabulary.encode("abz\u03a9\U0001f600").tolist() == [4, 3, UNK, UNK, UNK, EOS]
    assert vocabulary.encode(["b", "<pad>x"]).tolist() == [3, UNK, EOS]


def test_vocabulary_has_a_largest_size() -> None:
    assert Vocabulary.of(["aaabbc"], max_size=5).tokens[3:] == ("a", "b")
    many = Vocabulary.of([[str(i) for i in range(500)]])
    assert many.encode(["499"]).dtype == np.uint16


def test_a_mistake_found_by_a_process_is_the_users(capfd) -> None:
    job = (asdict(pathfinder_generator.PathfinderSettings(size=8)), 0, 0, 1)
    with pytest.raises(UserError, match=r"data\.image_size = 8.* do not fit"):
        list(mapped(pathfinder_generator.chunk, [job] * 4, n=2))
    assert "Traceback" not in capfd.readouterr().err


def test_a_source_that_cannot_be_read_is_not_blamed_on_the_cache(tmp_path: Path) -> None:
    def make(folder: Path) -> dict:
        raise PermissionError(13, "Permission denied", str(tmp_path / "mine.tsv"))

    with pytest.raises(UserError, match=r"mine\.tsv: cannot be read \(Permission denied\)"):
        prepared(LraData(cache=str(tmp_path / "cache")), (), make)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    made(tmp_path, [])
    (folder,) = (path for path in (tmp_path / "lra").iterdir() if path.is_dir())
    left = tmp_path / "lra" / f".{folder.name}.abc"
    folder.rename(left)
    (left / "test-values.bin").unlink()
    made(tmp_path, [])
    assert folder.is_dir() and not left.exists()


@pytest.mark.parametrize("root", ["~nobody-of-this-name/x", "x" * 5000, "a\0b"])
def test_folders_that_cannot_be_are_no_such_folder(root: str) -> None:
    with pytest.raises(UserError, match="no such folder"):
        given(root)
