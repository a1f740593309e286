"""FLAC files: read to their end, whatever number of samples the header gives."""

from collections.abc import Iterator

from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan

TOTAL = 21  # byte of STREAMINFO's 36-bit number of samples, from "fLaC" on: 4 bits here, then 4 bytes
MARKER = b"fLaC\0\0\0\x22"
SEARCH = 1 << 20  # bytes looked through at a time


def plan(data: Pieces, begin: int) -> Plan:
    """The header is shown without its number of samples, which makes the decoder read on; what comes is counted.

    Files joined one behind the other begin anew with their marker and become links of their own.
    """
    starts = [begin, *_later(data, begin + 4)]
    return Plan([_link(data, start, end) for start, end in zip(starts, [*starts[1:], data.size], strict=True)])


def _link(data: Pieces, begin: int, end: int) -> Link:
    head = bytearray(data.at(begin, 26))
    if len(head) < 26:
        return Link(data)
    promised = (head[TOTAL] & 0x0F) << 32 | int.from_bytes(head[22:26], "big")
    head[TOTAL] &= 0xF0
    head[22:26] = bytes(4)
    return Link(Pieces(data, [bytes(head), (begin + 26, end)]), open_end=True, least=promised)


def _later(data: Pieces, at: int) -> Iterator[int]:
    """Where further files begin: their marker and the head of STREAMINFO (34 bytes)."""
    while at < data.size:
        block = data.at(at, SEARCH)
        i = block.find(MARKER)
        while i >= 0:
            yield at + i
            i = block.find(MARKER, i + 1)
        at += max(1, len(block) - len(MARKER) + 1)
