"""IMDB reviews: the tree as it is released, a validation set held out, vocabulary of training text only."""

from pathlib import Path

import pytest

from kws_s5.config import LraData
from kws_s5.data.lra import build
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

N = 20  # reviews of each class in train; 5 in test


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for part, n in (("train", N), ("test", 5)):
        for label in ("neg", "pos"):
            folder = tmp_path / "aclImdb" / part / label
            folder.mkdir(parents=True)
            for i in range(n):
                strange = "\u03a9" * 30 if part == "test" else ""
                (folder / f"{i}_7.txt").write_text(f"{part} {label} review {i} " + "ab" * i + strange, encoding="utf-8")
    return tmp_path / "aclImdb"


def texts(splits: Splits, split: str) -> list[tuple[str, int]]:
    dataset = getattr(splits, split)
    examples = (dataset[i] for i in range(len(dataset)))
    return [("".join(splits.vocabulary[t] for t in e.x), int(e.y)) for e in examples]


def test_a_tenth_of_train_is_held_out_and_nothing_is_in_two_splits(tree: Path, tmp_path: Path) -> None:
    splits = build(LraData("text", root=str(tree), cache=str(tmp_path / "cache")))
    train, validation = texts(splits, "train"), texts(splits, "validation")
    assert (len(train), len(validation), len(splits.test)) == (2 * N - 4, 4, 10)
    assert sorted(label for _, label in validation) == [0, 0, 1, 1]
    assert not {text for text, _ in train} & {text for text, _ in validation}
    assert splits.labels == ("neg", "pos") and "held out" in splits.note


def test_selection_on_test_is_an_option_and_says_so(tree: Path, tmp_path: Path) -> None:
    splits = build(LraData("text", root=str(tree), select_on_test=True, cache=str(tmp_path / "cache")))
    assert len(splits.train) == 2 * N
    assert texts(splits, "validation") == texts(splits, "test")
    assert "chosen by the test set" in splits.note


def test_vocabulary_comes_from_training_text_and_rare_characters_are_unknown(tree: Path, tmp_path: Path) -> None:
    splits = build(LraData("text", root=str(tree.parent), cache=str(tmp_path / "cache")))
    assert splits.vocabulary[:3] == ("<pad>", "<unk>", "<eos>")
    assert "\u03a9" not in splits.vocabulary and "5" not in splits.vocabulary
    assert all("<unk>" in text for text, _ in texts(splits, "test"))


def test_texts_are_cut_and_end_with_eos(tree: Path, tmp_path: Path) -> None:
    splits = build(LraData("text", root=str(tree), max_length=16, cache=str(tmp_path / "cache")))
    assert all(len(splits.train[i].x) == 16 for i in range(len(splits.train)))
    assert all(text.endswith("<eos>") for text, _ in texts(splits, "train"))


def test_limits_keep_both_classes(tree: Path, tmp_path: Path) -> None:
    splits = build(LraData("text", root=str(tree), n_train=16, n_test=6, cache=str(tmp_path / "cache")))
    assert (len(splits.train), len(splits.test)) == (16, 6)
    assert {label for _, label in texts(splits, "train")} == {0, 1}


def test_missing_folders_are_told_with_the_layout(tree: Path, tmp_path: Path) -> None:
    (tree / "test" / "pos").rename(tree / "test" / "positive")
    with pytest.raises(UserError, match=r"has no test/pos; data\.root must hold train/pos"):
        build(LraData("text", root=str(tree), cache=str(tmp_path / "cache")))
    (tree / "test" / "pos").mkdir()
    with pytest.raises(UserError, match=r"has no \.txt files"):
        build(LraData("text", root=str(tree), cache=str(tmp_path / "cache")))


def test_a_changed_review_is_read_again(tree: Path, tmp_path: Path) -> None:
    config = LraData("text", root=str(tree), cache=str(tmp_path / "cache"))
    before = texts(build(config), "test")
    (tree / "test" / "neg" / "0_7.txt").write_text("train again")
    after = texts(build(config), "test")
    assert before[1:] == after[1:] and before[0] != after[0]
