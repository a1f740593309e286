"""ListOps: nested operations on lists of digits, as text -> the answer, one of ten classes.

Files (LRA archive, listops-1000/): basic_train.tsv, basic_val.tsv, basic_test.tsv with the columns Source and Target.
As published, round brackets are dropped and tokens are split at spaces; without files the task is generated.
"""

from collections.abc import Iterator
from pathlib import Path

from kws_s5.config import LraData
from kws_s5.data.cache import cache_errors, cache_folder, remove_unfinished
from kws_s5.data.lra.choice import limited
from kws_s5.data.lra.listops_generator import ListOpsSettings, write_tsv
from kws_s5.data.lra.progress import with_progress
from kws_s5.data.lra.sets import TokenSet
from kws_s5.data.lra.sources import found, given
from kws_s5.data.lra.store import VERSION, Writer, prepared, stamp
from kws_s5.data.lra.vocabulary import SPECIALS, Vocabulary
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError
from kws_s5.lock import locked

MAX_LENGTH = 2048  # tokens, <eos> included
SIZES = {"train": 96_000, "val": 2_000, "test": 2_000}
FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
LAYOUT = "basic_train.tsv, basic_val.tsv and basic_test.tsv (listops-1000/ of the LRA archive)"
PLACES = ("listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
DROPPED = str.maketrans("", "", "()")
MAX_SYMBOLS = 17  # beside the specials: 20 as the published models have


def build(config: LraData) -> Splits:
    """Splits of the official files in ``config.root``, or of generated ones."""
    longest = config.max_length or MAX_LENGTH
    root = found(given(config.root), FILES.values(), below=PLACES, layout=LAYOUT) if config.root else generated(config)
    limits = {"train": config.n_train, "validation": config.n_validation, "test": config.n_test}

    def make(folder: Path) -> dict:
        vocabulary = Vocabulary.of(
            (row[0] for row in _rows(root, "train", limits["train"], longest, config.seed)),
            max_size=len(SPECIALS) + MAX_SYMBOLS,
        )
        for split, limit in limits.items():
            writer = Writer(folder, split, vocabulary.dtype)
            for tokens, answer in _rows(root, split, limit, longest, config.seed):
                writer.add(answer, vocabulary.encode(tokens))
            writer.close()
        return {"vocabulary": vocabulary.tokens}

    data = prepared(config, stamp(root / name for name in FILES.values()), make)
    sets = {split: TokenSet(rows) for split, rows in data.rows.items()}
    report = {"examples": {split: len(s) for split, s in sets.items()}, "generated": not config.root}
    note = "ListOps, " + ("the official files" if config.root else f"generated with seed {config.seed}")
    return Splits(
        sets["train"],
        sets["validation"],
        sets["test"],
        tuple(map(str, range(10))),
        10,
        vocabulary=tuple(data.meta["vocabulary"]),
        report=report,
        note=note,
    )


def generated(config: LraData) -> Path:
    """The folder of generated files for ``config``, made first if it is not there."""
    default = ListOpsSettings()
    settings = ListOpsSettings(
        min_length=config.min_length or default.min_length,
        max_depth=config.max_depth or default.max_depth,
        max_length=min(config.max_length or default.max_length, default.max_length),
    )
    sizes = dict(
        zip(
            SIZES,
            (config.n_train or SIZES["train"], config.n_validation or SIZES["val"], config.n_test or SIZES["test"]),
            strict=True,
        )
    )
    name = "-".join(
        map(str, (VERSION, config.seed, settings.min_length, settings.max_length, settings.max_depth, *sizes.values()))
    )
    folder = cache_folder(config.cache) / "lra" / "generated" / f"listops-{name}"
    with cache_errors(folder), locked(folder / ".lock"):
        if not all((folder / file).exists() for file in FILES.values()):
            remove_unfinished(folder)
            write_tsv(folder, sizes, settings, seed=config.seed)
    return folder


def _rows(root: Path, split: str, limit: int, longest: int, seed: int) -> Iterator[tuple[list[str], int]]:
    """(tokens, answer) of at most ``limit`` rows of a file; cut so that <eos> still fits."""
    path = root / FILES[split]
    with open(path, encoding="utf-8", errors="replace") as file:
        n = sum(1 for _ in file) - 1
    kept = set(limited(range(n), limit, seed=seed).tolist()) if limit else None
    with open(path, encoding="utf-8", errors="replace") as file:
        if next(file, "").strip() != "Source\tTarget":
            raise UserError(
                f"{path}: does not begin with 'Source<tab>Target'; it is not a ListOps file of LRA, fetch it again"
            )
        for i, line in enumerate(with_progress(file, f"listops: {split}", n)):
            if kept is None or i in kept:
                source, _, target = line.rstrip("\n").partition("\t")
                if len(target) != 1 or target not in "0123456789":
                    raise UserError(f"{path}, line {i + 2}: expected 'expression<tab>digit'; fetch or make it again")
                yield source.translate(DROPPED).split()[: longest - 1], int(target)
