"""Pairs of made-up papers in the format of the AAN files: related pairs come from the same field, others do not.

A stand-in for data that cannot be downloaded, to try the task's code on: texts are common words with a field's own
terms strewn in, all of them spelt from syllables. Fields are the same in all splits, documents never are.
"""

from pathlib import Path

import numpy as np

from kws_s5.atomic import replacing
from kws_s5.data.lra.progress import with_progress

CONSONANTS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "sh", "tr")
SYLLABLES = [consonant + vowel for consonant in CONSONANTS for vowel in "aeiou"]
N_COMMON, N_FIELDS, N_TERMS = 400, 12, 10
TERM_SHARE = 0.35  # of the words of a document


def write_pairs(sizes: dict[Path, int], *, length: int, seed: int) -> None:
    """Writes tsv files of balanced pairs; every document has about ``length`` characters (down to three quarters)."""
    rng = np.random.default_rng(seed)
    words = sorted({_word(rng, n) for n in rng.integers(1, 4, 3 * (N_COMMON + N_FIELDS * N_TERMS))})
    words = [words[i] for i in rng.permutation(len(words))]
    common, terms = words[:N_COMMON], words[N_COMMON : N_COMMON + N_FIELDS * N_TERMS]
    fields = [terms[i : i + N_TERMS] for i in range(0, len(terms), N_TERMS)]
    number = 0
    for file_index, (path, n) in enumerate(sizes.items()):
        rng = np.random.default_rng([seed, file_index])
        with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
            for i in with_progress(range(n), f"retrieval: generating {path.name}", n):
                first, other = rng.choice(N_FIELDS, 2, replace=False)
                related = i % 2
                texts = [_document(rng, common, fields[k], length) for k in (first, first if related else other)]
                file.write(f"{related}.0\t{number:07d}\t{number + 1:07d}\t{texts[0]}\t{texts[1]}\n")
                number += 2


def _word(rng: np.random.Generator, n_syllables: int) -> str:
    return "".join(SYLLABLES[i] for i in rng.integers(len(SYLLABLES), size=n_syllables + 1))


def _document(rng: np.random.Generator, common: list[str], terms: list[str], length: int) -> str:
    """Sentences of 5 to 15 words; common words by Zipf's law, terms uniformly."""
    wanted, parts, size = rng.integers(3 * length // 4, length + 1), [], 0
    while size < wanted:
        n = rng.integers(5, 16)
        ranks = np.minimum(np.exp(rng.random(n) * np.log(N_COMMON)).astype(int), N_COMMON - 1)
        is_term = rng.random(n) < TERM_SHARE
        words = [
            terms[t] if own else common[r]
            for own, r, t in zip(is_term, ranks, rng.integers(len(terms), size=n), strict=True)
        ]
        parts.append(" ".join(words).capitalize() + ".")
        size += len(parts[-1]) + 1
    return " ".join(parts)[:wanted]
