"""Tokens by id, built from training text only: <pad> 0, <unk> 1, <eos> 2, then by frequency (ties: alphabetically).

The published loaders count what is left of a text after it was cut to its longest length, keep tokens seen at least
``min_count`` times, and end every text with <eos>. Padding is told by lengths here, so id 0 never occurs in a sequence.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

PAD, UNK, EOS = 0, 1, 2
SPECIALS = ("<pad>", "<unk>", "<eos>")


class Vocabulary:
    """Turns tokens (characters or words) into ids."""

    def __init__(self, tokens: Sequence[str]) -> None:
        """tokens: by id, specials first."""
        assert tuple(tokens[:3]) == SPECIALS
        self.tokens = tuple(tokens)
        self.ids = {token: id for id, token in enumerate(self.tokens)}
        self.dtype = np.uint8 if len(self.tokens) <= 256 else np.uint16
        self._table: np.ndarray | None = None

    @classmethod
    def of(cls, texts: Iterable[str | Sequence[str]], *, min_count: int = 1, max_size: int = 0) -> "Vocabulary":
        """Counts the tokens of ``texts`` (a string counts by characters).

        Args:
            min_count: rarer tokens become <unk>.
            max_size: largest vocabulary, specials included; the rarest tokens beyond it become <unk>. 0: no limit.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        kept = sorted((t for t, n in counts.items() if n >= min_count), key=lambda t: (-counts[t], t))
        return cls((*SPECIALS, *(kept[: max_size - len(SPECIALS)] if max_size else kept)))

    def encode(self, text: str | Sequence[str]) -> np.ndarray:
        """(L + 1,) ids of the text's tokens (a string is read by characters) and <eos>."""
        ids = self._characters(text) if isinstance(text, str) else [self.ids.get(token, UNK) for token in text]
        return np.append(np.asarray(ids, self.dtype), self.dtype(EOS))

    def _characters(self, text: str) -> np.ndarray:
        if self._table is None:
            self._table = np.full(0x110000, UNK, self.dtype)
            for token, id in self.ids.items():
                if len(token) == 1:
                    self._table[ord(token)] = id
        return self._table[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")]
