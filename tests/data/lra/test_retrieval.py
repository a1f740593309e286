"""Pairs of documents: the AAN format, generated pairs, batches of 2N rows."""

from pathlib import Path

import pytest

from kws_s5.config import LraData
from kws_s5.data.batch import collate
from kws_s5.data.lra import build
from kws_s5.errors import UserError

FILES = [f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")]


def write(folder: Path, rows: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_text(rows, encoding="utf-8")


def test_official_rows_become_pairs(tmp_path: Path) -> None:
    write(tmp_path / "tsv_data", "1.0\tP1\tP2\tb'first text'\tb\"second\\n one\"\n0.0\tP3\tP1\tb'x'\tb'yy'\n")
    splits = build(LraData("retrieval", root=str(tmp_path), cache=str(tmp_path / "cache")))
    pairs = [splits.train[i] for i in range(2)]
    read = [["".join(splits.vocabulary[t] for t in text) for text in (pair.x, pair.x2)] for pair in pairs]
    assert read == [["b'first text'<eos>", 'b"second\\n one"<eos>'], ["b'x'<eos>", "b'yy'<eos>"]]
    assert [int(pair.y) for pair in pairs] == [1, 0] and splits.labels == ("unrelated", "related")


def test_batches_hold_first_documents_then_second_ones(tmp_path: Path) -> None:
    splits = build(LraData("retrieval", n_train=6, n_validation=2, n_test=2, max_length=64, cache=str(tmp_path)))
    examples = [splits.train[i] for i in range(3)]
    batch = collate(examples)
    assert len(batch) == 3 and len(batch.x) == 6
    for i, example in enumerate(examples):
        assert batch.x[i, : batch.lengths[i]].equal(example.x)
        assert batch.x[3 + i, : batch.lengths[3 + i]].equal(example.x2)


def test_generated_pairs_are_balanced_reproducible_and_never_shared(tmp_path: Path) -> None:
    def documents(cache: str, seed: int = 0) -> dict[str, list[bytes]]:
        splits = build(
            LraData(
                "retrieval",
                n_train=40,
                n_validation=10,
                n_test=10,
                max_length=200,
                seed=seed,
                cache=str(tmp_path / cache),
            )
        )
        assert splits.train.targets.mean() == 0.5
        return {
            name: [row.numpy().tobytes() for i in range(len(s)) for row in (s[i].x, s[i].x2)]
            for name, s in (("train", splits.train), ("validation", splits.validation), ("test", splits.test))
        }

    one = documents("a")
    every = [text for split in one.values() for text in split]
    assert len(set(every)) == len(every) == 120
    assert documents("b") == one
    assert documents("a", seed=1) != one


def test_related_documents_share_more_words(tmp_path: Path) -> None:
    splits = build(LraData("retrieval", n_train=60, n_validation=2, n_test=2, max_length=800, cache=str(tmp_path)))
    shared = {0: [], 1: []}
    for pair in (splits.train[i] for i in range(60)):
        words = [
            set("".join(splits.vocabulary[t] for t in x[:-1]).lower().replace(".", "").split())
            for x in (pair.x, pair.x2)
        ]
        shared[int(pair.y)].append(len(words[0] & words[1]))
    assert min(shared[1]) >= 8 > sum(shared[0]) / len(shared[0]) / 2
    assert sum(shared[1]) > 1.2 * sum(shared[0])


@pytest.mark.parametrize("row", ["1.0\tP1\tP2\tonly one text\n", "2.0\tP1\tP2\ta\tb\n", "a line\n"])
def test_other_files_are_refused_in_one_line(tmp_path: Path, row: str) -> None:
    write(tmp_path, row)
    with pytest.raises(UserError, match=r"new_aan_pairs\.train\.tsv, row 1: expected label"):
        build(LraData("retrieval", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_missing_files_are_told_with_the_layout(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no new_aan_pairs\.train\.tsv; data\.root must hold .*tsv_data"):
        build(LraData("retrieval", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_a_text_longer_than_any_paper_is_refused_in_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("kws_s5.data.lra.retrieval.MAX_FIELD", 1000)
    write(tmp_path, "1.0\tP1\tP2\t" + "x" * 2000 + "\ty\n")
    with pytest.raises(UserError, match=r"train\.tsv: is no table of pairs \(field larger"):
        build(LraData("retrieval", root=str(tmp_path), cache=str(tmp_path / "cache")))
