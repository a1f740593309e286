"""IMDB reviews by character -> positive or negative.

Files (Maas et al. 2011, aclImdb_v1): train/pos, train/neg, test/pos, test/neg, one review a .txt file. There is no
validation set: ten per cent of the training reviews of each class are held out here; the published numbers choose the
epoch by the test set (data.select_on_test).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kws_s5.config import LraData
from kws_s5.data.lra.choice import limited
from kws_s5.data.lra.progress import with_progress
from kws_s5.data.lra.sets import TokenSet
from kws_s5.data.lra.sources import fetched_archive, found, given
from kws_s5.data.lra.store import Writer, prepared, stamp
from kws_s5.data.lra.vocabulary import Vocabulary
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

MAX_LENGTH = 4096  # tokens, <eos> included
MIN_COUNT, MAX_SIZE = 15, 135  # characters of the vocabulary: as published
HELD_OUT = 0.1
LABELS = ("neg", "pos")
FOLDERS = tuple(f"{part}/{label}" for part in ("train", "test") for label in LABELS)
LAYOUT = "train/pos, train/neg, test/pos and test/neg with one review a .txt file (the aclImdb archive)"
Review = tuple[Path, int]


def build(config: LraData) -> Splits:
    """Splits of the reviews in ``config.root``, or of the archive, downloaded."""
    start = given(config.root) if config.root else fetched_archive("aclImdb", cache=config.cache)
    root = found(start, FOLDERS, below=("aclImdb",), layout=LAYOUT)
    reviews = {part: _reviews(root, part) for part in ("train", "test")}
    chosen = _split(reviews, config)
    longest = config.max_length or MAX_LENGTH

    def make(folder: Path) -> dict:
        vocabulary = Vocabulary.of(
            _texts(chosen["train"], longest, "text: counting characters"), min_count=MIN_COUNT, max_size=MAX_SIZE
        )
        for split, members in chosen.items():
            writer = Writer(folder, split, vocabulary.dtype)
            texts = _texts(members, longest, f"text: {split}")
            for (_, label), text in zip(members, texts, strict=True):
                writer.add(label, vocabulary.encode(text))
            writer.close()
        return {"vocabulary": vocabulary.tokens}

    data = prepared(config, stamp(path for part in reviews.values() for path, _ in part), make)
    sets = {split: TokenSet(rows) for split, rows in data.rows.items()}
    selection = "epoch chosen by the test set" if config.select_on_test else "10 % of train held out"
    return Splits(
        sets["train"],
        sets["validation"],
        sets["test"],
        LABELS,
        2,
        vocabulary=tuple(data.meta["vocabulary"]),
        report={"examples": {split: len(s) for split, s in sets.items()}, "validation": selection},
        note=f"IMDB reviews by character, {selection}",
    )


def _reviews(root: Path, part: str) -> list[Review]:
    found_ = []
    for label, name in enumerate(LABELS):
        files = sorted((root / part / name).glob("*.txt"))
        if not files:
            raise UserError(f"{root / part / name}: has no .txt files; data.root must hold {LAYOUT}")
        found_ += [(path, label) for path in files]
    return found_


def _split(reviews: dict[str, list[Review]], config: LraData) -> dict[str, list[Review]]:
    """The three splits within the config's limits."""
    train, test = reviews["train"], reviews["test"]
    validation = test
    if not config.select_on_test:
        held_out = _held_out([label for _, label in train], config.seed)
        validation = [review for review, out in zip(train, held_out, strict=True) if out]
        train = [review for review, out in zip(train, held_out, strict=True) if not out]
    limits = {
        "train": (train, config.n_train),
        "test": (test, config.n_test),
        "validation": (validation, config.n_test if config.select_on_test else config.n_validation),
    }
    return {
        split: [members[i] for i in limited(range(len(members)), n, seed=config.seed)]
        for split, (members, n) in limits.items()
    }


def _held_out(labels: list[int], seed: int) -> np.ndarray:
    """(n,) bool: a tenth of each class."""
    out = np.zeros(len(labels), bool)
    for label in set(labels):
        members = np.flatnonzero(np.asarray(labels) == label)
        n = max(1, round(HELD_OUT * len(members)))
        out[np.random.default_rng([seed, label]).permutation(members)[:n]] = True
    return out


def _texts(reviews: list[Review], longest: int, doing: str) -> Iterator[str]:
    """The reviews, cut so that <eos> still fits."""
    for path, _ in with_progress(reviews, doing, len(reviews)):
        yield path.read_text(encoding="utf-8", errors="replace")[: longest - 1]
