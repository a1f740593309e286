"""A file made of pieces of another: what a decoder is shown where the file's own header misleads it.

Constant memory: a piece is either a few bytes of our own (a header set right) or a range of the file.
"""

import io
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Protocol


class Readable(Protocol):
    """A binary stream that can seek."""

    def seek(self, offset: int, whence: int = 0) -> int: ...

    def read(self, n: int = -1) -> bytes: ...


Piece = bytes | tuple[int, int]  # bytes of our own, or (first, last + 1) of the file


class Pieces(io.RawIOBase):
    """Reads the pieces one after the other. A seek outside of them (damaged headers ask for it) changes nothing,
    instead of raising an error inside libsndfile's callback, where nobody can catch it."""

    def __init__(self, source: Readable, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._source, self._pieces = source, list(pieces)
        self._starts, at = [], 0
        for piece in self._pieces:
            self._starts.append(at)
            at += len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]
        self.size, self._at = at, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        to = offset + (0, self._at, self.size)[whence]
        if 0 <= to < 1 << 62:
            self._at = to
        return self._at

    def readinto(self, buffer: Any) -> int:
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and self._at < self.size:
            i = bisect_right(self._starts, self._at) - 1
            piece, skip = self._pieces[i], self._at - self._starts[i]
            if isinstance(piece, bytes):
                part = piece[skip : skip + len(view) - done]
            else:
                self._source.seek(piece[0] + skip)
                part = self._source.read(min(len(view) - done, piece[1] - piece[0] - skip))
            if not part:  # the file has become shorter
                break
            view[done : done + len(part)] = part
            done, self._at = done + len(part), self._at + len(part)
        return done

    def at(self, offset: int, n: int) -> bytes:
        """Up to n bytes from offset."""
        self.seek(offset)
        return self.read(n) or b""
