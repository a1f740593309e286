"""Retrieval: two documents by character -> related or not.

Files (LRA archive, tsv_data/, from the ACL Anthology Network): new_aan_pairs.{train,eval,test}.tsv, without a header:
label (1.0 or 0.0), id of the first text, id of the second, first text, second text. Without files a stand-in in the
same format is generated (retrieval_generator.py).
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from kws_s5.config import LraData
from kws_s5.data.cache import cache_errors, cache_folder, remove_unfinished
from kws_s5.data.lra.choice import limited
from kws_s5.data.lra.progress import with_progress
from kws_s5.data.lra.retrieval_generator import write_pairs
from kws_s5.data.lra.sets import PairSet
from kws_s5.data.lra.sources import found, given
from kws_s5.data.lra.store import VERSION, Writer, prepared, stamp
from kws_s5.data.lra.vocabulary import Vocabulary
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError
from kws_s5.lock import locked

MAX_LENGTH = 4000  # tokens of each text, <eos> included
MAX_SIZE = 128  # characters of the vocabulary; the published texts have about 98
FILES = {"train": "new_aan_pairs.train.tsv", "validation": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"}
LAYOUT = "new_aan_pairs.train.tsv, .eval.tsv and .test.tsv (tsv_data/ of the LRA archive)"
PLACES = ("tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
LABELS = ("unrelated", "related")
GENERATED = {"train": 8_000, "validation": 1_000, "test": 1_000}
MAX_FIELD = 16 * 2**20  # characters: longer than any paper
Pair = tuple[str, str, int]


def build(config: LraData) -> Splits:
    """Splits of the pairs in ``config.root``, or of generated ones."""
    longest = config.max_length or MAX_LENGTH
    root = found(given(config.root), FILES.values(), below=PLACES, layout=LAYOUT) if config.root else generated(config)
    limits = {"train": config.n_train, "validation": config.n_validation, "test": config.n_test}

    def make(folder: Path) -> dict:
        texts = (text for *both, _ in _pairs(root, "train", limits["train"], longest, config.seed) for text in both)
        vocabulary = Vocabulary.of(texts, max_size=MAX_SIZE)
        for split, limit in limits.items():
            writer = Writer(folder, split, vocabulary.dtype)
            for first, second, label in _pairs(root, split, limit, longest, config.seed):
                writer.add(label, vocabulary.encode(first), vocabulary.encode(second))
            writer.close()
        return {"vocabulary": vocabulary.tokens}

    data = prepared(config, stamp(root / name for name in FILES.values()), make)
    sets = {split: PairSet(rows) for split, rows in data.rows.items()}
    made_here = f"generated pairs of texts (a stand-in), seed {config.seed}"
    note = "ACL Anthology Network pairs" if config.root else made_here
    report = {"examples": {split: len(s) for split, s in sets.items()}, "generated": not config.root}
    return Splits(
        sets["train"],
        sets["validation"],
        sets["test"],
        LABELS,
        2,
        vocabulary=tuple(data.meta["vocabulary"]),
        report=report,
        note=note,
    )


def generated(config: LraData) -> Path:
    """The folder of generated files for ``config``, made first if it is not there."""
    sizes = {"train": config.n_train, "validation": config.n_validation, "test": config.n_test}
    sizes = {split: n or GENERATED[split] for split, n in sizes.items()}
    length = config.max_length or MAX_LENGTH
    name = "-".join(map(str, (VERSION, config.seed, length, *sizes.values())))
    folder = cache_folder(config.cache) / "lra" / "generated" / f"retrieval-{name}"
    with cache_errors(folder), locked(folder / ".lock"):
        if not all((folder / file).exists() for file in FILES.values()):
            remove_unfinished(folder)
            write_pairs({folder / FILES[split]: n for split, n in sizes.items()}, length=length, seed=config.seed)
    return folder


def _pairs(root: Path, split: str, limit: int, longest: int, seed: int) -> Iterator[Pair]:
    """At most ``limit`` pairs of a file, texts cut so that <eos> still fits."""
    path = root / FILES[split]
    try:
        yield from _read(path, split, limit, longest, seed)
    except csv.Error as error:
        raise UserError(f"{path}: is no table of pairs ({error}); data.root must hold {LAYOUT}") from error


def _read(path: Path, split: str, limit: int, longest: int, seed: int) -> Iterator[Pair]:
    csv.field_size_limit(MAX_FIELD)
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        n = sum(1 for _ in csv.reader(file, delimiter="\t"))
    kept = set(limited(range(n), limit, seed=seed).tolist()) if limit else None
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        for i, row in enumerate(with_progress(csv.reader(file, delimiter="\t"), f"retrieval: {split}", n)):
            if kept is None or i in kept:
                if len(row) != 5 or row[0] not in ("0", "1", "0.0", "1.0"):
                    raise UserError(
                        f"{path}, row {i + 1}: expected label (0 or 1), two ids and two texts between "
                        f"tabs; data.root must hold {LAYOUT}"
                    )
                yield row[3][: longest - 1], row[4][: longest - 1], int(float(row[0]))
