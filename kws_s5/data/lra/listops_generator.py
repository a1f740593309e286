"""ListOps expressions by the official distribution (Nangia & Bowman 2018; lengths of Tay et al. 2020) with answers.

A node is a digit with probability 0.75, else an operator with 2 to 10 arguments (uniform); at the deepest level always
a digit. Expressions whose length (operators, digits and closing brackets) lies strictly between min_length and
max_length are kept, each once. MED is the median, halves rounded down; SM the sum modulo 10.

Whole forests are drawn level by level as arrays: lengths and answers come from the leaves upwards, positions in the
text from the roots downwards. Chunk i of seed s is a function of (s, i), whatever the number of processes.

Legend: n trees, m nodes of one level.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kws_s5.atomic import replacing
from kws_s5.data.lra.progress import with_progress
from kws_s5.errors import UserError
from kws_s5.processes import mapped

SYMBOLS = (*map(str, range(10)), "[MIN", "[MAX", "[MED", "[SM", "]")
FIRST_OPERATOR, N_OPERATORS, END = 10, 4, 14
OPERATOR_SHARE = 0.25
CHUNK = 4096  # trees
HEADER = "Source\tTarget\n"


@dataclass(frozen=True)
class ListOpsSettings:
    """The published task by default."""

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_arguments: int = 10


@dataclass
class Level:
    """The nodes of one depth, siblings side by side."""

    parent: np.ndarray  # (m,) index into the level above
    symbol: np.ndarray  # (m,) digit or operator
    n_arguments: np.ndarray  # (m,) 0 for digits


def write_tsv(
    folder: Path, sizes: dict[str, int], settings: ListOpsSettings, *, seed: int, n_workers: int | None = None
) -> None:
    """Writes basic_<split>.tsv for every split: one de-duplicated set, cut in the order of ``sizes``.

    Raises:
        UserError: the settings leave (next to) no expressions.
    """
    expressions = unique_expressions(settings, seed=seed, n_workers=n_workers)
    counted = with_progress(expressions, "listops: generating", sum(sizes.values()))
    for split, n in sizes.items():
        with replacing(folder / f"basic_{split}.tsv") as temporary, open(temporary, "w", encoding="ascii") as file:
            file.write(HEADER)
            for _ in range(n):
                tokens, answer = next(counted)
                file.write(f"{' '.join(SYMBOLS[t] for t in tokens)}\t{answer}\n")


def unique_expressions(
    settings: ListOpsSettings, *, seed: int, n_workers: int | None = None
) -> Iterator[tuple[np.ndarray, int]]:
    """Endless (tokens, answer), no expression twice."""
    seen: set[bytes] = set()
    first, step, n_chunks = 0, 1, 0
    while True:
        jobs = [(seed, i, asdict(settings)) for i in range(first, first + step)]
        new = 0
        for found in mapped(chunk, jobs, n=n_workers):
            stops = np.cumsum(found["lengths"])
            for stop, length, answer in zip(stops, found["lengths"], found["answers"], strict=True):
                tokens = found["tokens"][stop - length : stop]
                digest = hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    new += 1
                    yield tokens, int(answer)
        n_chunks = 0 if new else n_chunks + step
        if n_chunks > 64:
            raise UserError(
                f"data.min_length = {settings.min_length}, data.max_length = {settings.max_length}, "
                f"data.max_depth = {settings.max_depth}: there are no more such expressions (found "
                f"{len(seen):,}); allow other lengths or ask for fewer examples"
            )
        first, step = first + step, min(4 * step, 64)


def chunk(seed: int, index: int, settings: dict) -> dict[str, np.ndarray]:
    """The accepted expressions among trees ``index`` * CHUNK and following: tokens (joined), lengths, answers."""
    limits = ListOpsSettings(**settings)
    levels = forest(np.random.default_rng([seed, index]), CHUNK, limits)
    lengths, answers = measured(levels)
    tokens, starts = written(levels, lengths)
    kept = np.flatnonzero((lengths[0] > limits.min_length) & (lengths[0] < limits.max_length))
    parts = [tokens[starts[i] : starts[i] + lengths[0][i]] for i in kept]
    return {
        "tokens": np.concatenate(parts) if parts else np.zeros(0, np.uint8),
        "lengths": lengths[0][kept],
        "answers": answers[kept].astype(np.uint8),
    }


def forest(rng: np.random.Generator, n: int, settings: ListOpsSettings) -> list[Level]:
    """``n`` random trees, one Level a depth; the first holds the roots."""
    levels: list[Level] = []
    parent = np.arange(n)
    for depth in range(1, settings.max_depth + 1):
        m = len(parent)
        operator = rng.random(m) < OPERATOR_SHARE if depth < settings.max_depth else np.zeros(m, bool)
        symbol = np.where(operator, FIRST_OPERATOR + rng.integers(N_OPERATORS, size=m), rng.integers(10, size=m))
        n_arguments = np.where(operator, rng.integers(2, settings.max_arguments + 1, size=m), 0)
        levels.append(Level(parent, symbol, n_arguments))
        parent = np.repeat(np.arange(m), n_arguments)
    return levels


def measured(levels: list[Level]) -> tuple[list[np.ndarray], np.ndarray]:
    """Lengths of all subtrees, by level, and the answers of the roots (n,)."""
    lengths: list[np.ndarray] = []
    child_lengths = child_values = np.zeros(0, np.int64)
    for level in reversed(levels):
        operator = level.n_arguments > 0
        length, value = np.ones(len(operator), np.int64), level.symbol.copy()
        if operator.any():
            first = (np.cumsum(level.n_arguments) - level.n_arguments)[operator]  # first argument of each operator
            length[operator] = 2 + np.add.reduceat(child_lengths, first)
            value[operator] = _applied(level.symbol[operator], child_values, first, level.n_arguments[operator])
        lengths.insert(0, length)
        child_lengths, child_values = length, value
    return lengths, child_values


def written(levels: list[Level], lengths: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All trees as symbols one after the other (uint8), and where each begins (n,)."""
    tokens = np.empty(lengths[0].sum(), np.uint8)
    starts = position = np.cumsum(lengths[0]) - lengths[0]
    for depth, level in enumerate(levels):
        tokens[position] = level.symbol
        operator = level.n_arguments > 0
        tokens[(position + lengths[depth] - 1)[operator]] = END
        if not operator.any():
            break
        below = lengths[depth + 1]
        before = np.cumsum(below) - below  # symbols of earlier arguments, of this and of earlier operators
        first = np.cumsum(level.n_arguments) - level.n_arguments
        parent = levels[depth + 1].parent
        position = position[parent] + 1 + before - before[first[parent]]
    return tokens, starts


def _applied(operators: np.ndarray, values: np.ndarray, first: np.ndarray, n_arguments: np.ndarray) -> np.ndarray:
    """Results of operators whose arguments are values[first: first + n_arguments]."""
    group = np.repeat(np.arange(len(operators)), n_arguments)
    ordered = values[np.lexsort((values, group))]
    median = (ordered[first + (n_arguments - 1) // 2] + ordered[first + n_arguments // 2]) // 2
    results = (ordered[first], ordered[first + n_arguments - 1], median, np.add.reduceat(values, first) % 10)
    return np.choose(operators - FIRST_OPERATOR, results)
