"""A forward-only view of an unpacked tar stream that bounds what a hostile archive can make a reader do.

``tarfile`` trusts sizes written in headers: it would read a header of gigabytes into memory, seek back and forth, or
skip forward through a bomb, before any filter is asked. Here long header reads, backward seeks and streams beyond the
limit end in an error.
"""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

MAX_HEADER = 64 * 1024  # bytes of one header read by tarfile: names are shorter
BLOCK = 2**20


class TarStream:
    """What ``tarfile`` needs of a file (read, seek, tell), over ``plain`` of at most ``limit`` bytes."""

    def __init__(self, plain: BinaryIO, limit: int) -> None:
        self.plain, self.limit, self.position = plain, limit, 0
        self.last = b""  # tarfile steps back by one byte to test that the previous member was complete
        self.again = False
        self.at_end_marker = False  # the last header read was the block of zeros that ends an archive

    def tell(self) -> int:
        return self.position - self.again

    def read(self, n: int) -> bytes:
        if not 0 <= n <= MAX_HEADER:
            raise tarfile.ReadError(f"a header of {n} bytes")
        if self.again and n:
            self.again = False
            return self.last + self._advance(n - 1)
        data = self._advance(n)
        self.at_end_marker = n == tarfile.BLOCKSIZE and data == bytes(n)
        return data

    def seek(self, target: int) -> None:
        if self.last and target == self.position - 1:
            self.again = True
            return
        if target < self.tell():
            raise tarfile.ReadError("goes backwards")
        self.again = False
        for _ in self.blocks(target - self.position, BLOCK):
            pass

    def blocks(self, n: int, size: int) -> Iterator[bytes]:
        """The next ``n`` bytes in pieces of at most ``size``; fewer where the stream ends."""
        while n > 0 and (data := self._advance(min(n, size))):
            n -= len(data)
            yield data

    def drain(self) -> None:
        """Reads to the end, so that a checksum kept there is verified."""
        while self._advance(BLOCK):
            pass

    def close(self) -> None:
        pass  # the opener of ``plain`` closes it

    def _advance(self, n: int) -> bytes:
        data = self.plain.read(n)
        self.position += len(data)
        if self.position > self.limit:
            raise tarfile.ReadError(f"unpacks to more than {self.limit} bytes")
        self.last = data[-1:] or self.last
        return data
