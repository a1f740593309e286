"""ListOps: answers by an independent evaluator, the official distribution, files in and out."""

from pathlib import Path

import numpy as np
import pytest

from kws_s5.config import LraData
from kws_s5.data.lra import build
from kws_s5.data.lra.listops_generator import (
    FIRST_OPERATOR,
    SYMBOLS,
    ListOpsSettings,
    chunk,
    forest,
    unique_expressions,
    write_tsv,
)
from kws_s5.errors import UserError

SMALL = ListOpsSettings(min_length=8, max_length=60, max_depth=5)
PUBLISHED = {}


def evaluated(words: list[str]) -> int:
    """The answer by recursion over the text: reads one expression and insists that it is all there is."""

    def read(i: int) -> tuple[int, int]:
        if words[i].isdigit():
            return int(words[i]), i + 1
        operator, values, i = words[i], [], i + 1
        while words[i] != "]":
            value, i = read(i)
            values.append(value)
        assert 2 <= len(values) <= 10
        result = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(np.median(v)), "[SM": lambda v: sum(v) % 10}[operator]
        return int(result(values)), i + 1

    value, end = read(0)
    assert end == len(words)
    return value


def depth(words: list[str]) -> int:
    open_ = np.cumsum([w.startswith("[") - (w == "]") for w in words])
    return int(open_.max()) + 1  # digits lie one level below the deepest operator


def expressions(found: dict[str, np.ndarray]) -> list[list[str]]:
    parts = np.split(found["tokens"], np.cumsum(found["lengths"])[:-1])
    return [[SYMBOLS[t] for t in part] for part in parts]


@pytest.mark.parametrize("settings", [PUBLISHED, {"min_length": 8, "max_length": 60, "max_depth": 5}])
def test_answers_agree_with_an_independent_evaluator(settings: dict) -> None:
    found = chunk(seed=3, index=0, settings=settings)
    texts = expressions(found)
    assert len(texts) > 100
    assert [evaluated(words) for words in texts] == found["answers"].tolist()


def test_lengths_and_depth_are_those_of_the_published_task() -> None:
    texts = expressions(chunk(seed=1, index=5, settings=PUBLISHED))
    assert all(500 < len(words) < 2000 for words in texts)
    assert max(map(depth, texts)) == 10


def test_nodes_follow_the_official_distribution() -> None:
    levels = forest(np.random.default_rng(0), 20_000, ListOpsSettings())
    symbols = np.concatenate([level.symbol for level in levels[:9]])
    n_arguments = np.concatenate([level.n_arguments for level in levels[:9]])
    operator = symbols >= FIRST_OPERATOR
    assert operator.mean() == pytest.approx(0.25, abs=0.003)
    assert not (levels[9].symbol >= FIRST_OPERATOR).any()
    kinds, counts = np.unique(symbols[operator], return_counts=True)
    assert kinds.tolist() == [10, 11, 12, 13] and counts / counts.sum() == pytest.approx(np.full(4, 0.25), abs=0.01)
    sizes, counts = np.unique(n_arguments[operator], return_counts=True)
    assert sizes.tolist() == list(range(2, 11)) and counts / counts.sum() == pytest.approx(np.full(9, 1 / 9), abs=0.01)
    digits = np.bincount(symbols[~operator], minlength=10)
    assert digits / digits.sum() == pytest.approx(np.full(10, 0.1), abs=0.01)


def test_expressions_come_once_and_depend_on_the_seed_alone() -> None:
    def first(n: int, **options: int) -> list[bytes]:
        stream = unique_expressions(SMALL, **options)
        return [next(stream)[0].tobytes() for _ in range(n)]

    one = first(1500, seed=0, n_workers=1)
    assert len(set(one)) == 1500
    assert first(1500, seed=0, n_workers=2) == one
    assert first(1500, seed=1, n_workers=1) != one


def test_splits_are_disjoint_and_files_read_back_as_they_were_written(tmp_path: Path) -> None:
    write_tsv(tmp_path, {"train": 40, "val": 10, "test": 10}, SMALL, seed=2)
    splits = build(LraData("listops", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [40, 10, 10]
    seen = set()
    for dataset in (splits.train, splits.validation, splits.test):
        for example in (dataset[i] for i in range(len(dataset))):
            words = [splits.vocabulary[t] for t in example.x]
            assert words.pop() == "<eos>"
            assert evaluated(words) == int(example.y)
            seen.add(tuple(words))
    assert len(seen) == 60


def test_official_files_with_round_brackets_read_the_same(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / f"basic_{split}.tsv").write_text("Source\tTarget\n( ( ( ( [MAX 2 ) 9 ) 4 ) ] )\t9\n")
    splits = build(LraData("listops", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert [splits.vocabulary[t] for t in splits.train[0].x] == ["[MAX", "2", "9", "4", "]", "<eos>"]
    assert splits.labels[int(splits.train[0].y)] == "9"


def test_long_expressions_are_cut_so_that_the_end_still_fits(tmp_path: Path) -> None:
    write_tsv(tmp_path, {"train": 20, "val": 5, "test": 5}, SMALL, seed=2)
    splits = build(LraData("listops", root=str(tmp_path), max_length=12, cache=str(tmp_path / "cache")))
    examples = [splits.train[i].x for i in range(20)]
    assert max(map(len, examples)) == 12
    assert all(splits.vocabulary[x[-1]] == "<eos>" for x in examples)


def test_generated_task_honours_its_config(tmp_path: Path) -> None:
    config = LraData(
        "listops", n_train=30, n_validation=6, n_test=6, min_length=10, max_length=40, max_depth=3, cache=str(tmp_path)
    )
    splits = build(config)
    texts = [[splits.vocabulary[t] for t in splits.train[i].x[:-1]] for i in range(30)]
    assert all(10 < len(words) < 40 and depth(words) <= 3 for words in texts)
    assert splits.report["generated"] and "seed 0" in splits.note


@pytest.mark.parametrize(
    "data", [b"", b"Source\n", b"Source\tTarget\n[MAX 1 2 ]\tten\n", b"\xff\xfeS\0o\0", b"Source\tTarget\n\x80\x81\n"]
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / f"basic_{split}.tsv").write_bytes(data)
    with pytest.raises(UserError, match="basic_train.tsv") as error:
        build(LraData("listops", root=str(tmp_path), cache=str(tmp_path / "cache")))
    assert "\n" not in str(error.value)


def test_missing_files_are_told_with_the_layout(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no basic_train\.tsv; data\.root must hold .*LRA archive"):
        build(LraData("listops", root=str(tmp_path), cache=str(tmp_path / "cache")))
    with pytest.raises(UserError, match="no such folder"):
        build(LraData("listops", root=str(tmp_path / "nowhere"), cache=str(tmp_path / "cache")))


def test_impossible_wishes_end_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no more such expressions"):
        build(LraData("listops", max_depth=2, min_length=500, n_train=5, n_validation=1, n_test=1, cache=str(tmp_path)))


def test_files_with_a_header_only_are_told(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / f"basic_{split}.tsv").write_text("Source\tTarget\n")
    with pytest.raises(UserError, match=r"data\.root = .* leaves no train examples"):
        build(LraData("listops", root=str(tmp_path), cache=str(tmp_path / "cache")))


def test_trees_too_deep_for_memory_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"data\.max_depth = 60"):
        LraData("listops", max_depth=60)
