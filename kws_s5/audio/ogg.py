"""Ogg files (Vorbis, Opus, FLAC, Speex): page by page, one link for each stream chained behind another.

The first sound of each link is taken. A link without an end mark (apps that were stopped) gets one, and FLAC inside of
Ogg is shown as a plain FLAC file. Source: RFC 3533; "FLAC to Ogg mapping" (RFC 9639, section 10.1).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kws_s5.audio import flac
from kws_s5.audio.pieces import Piece, Pieces
from kws_s5.audio.plan import Link, Plan

SOUND = (b"\x01vorbis", b"OpusHead", b"\x7fFLAC", b"Speex   ")
SEARCH = 1 << 16  # bytes looked through at a time for the next page


@dataclass(frozen=True)
class Page:
    """Where a page lies."""

    start: int
    body: int
    end: int
    flags: int  # 1 goes on a packet, 2 first page of a stream, 4 last page
    serial: int


def plan(data: Pieces, begin: int) -> Plan:
    """The links of a file."""
    result, first = Plan([]), b""
    pages: list[tuple[int, int, int]] = []  # start, body, end; neighbours are joined unless it is FLAC
    chosen, kind, last, others = -1, b"", None, False

    def close() -> None:
        if last is not None and pages:
            result.links.append(_link(data, pages, kind, last))

    heads = True  # within the first pages of a link
    for page in _pages(data, begin, result):
        if page.flags & 2:
            if not heads:
                close()
                pages, chosen, kind, last = [], -1, b"", None
            heads = True
            first = data.at(page.body, 9)
            name = next((name for name in SOUND if first.startswith(name)), b"")
            if chosen >= 0 or not name:
                others = others or bool(name)
                continue
            chosen, kind = page.serial, name
        else:
            heads = False
        if page.serial != chosen:
            continue
        last = page
        if pages and pages[-1][2] == page.start and kind != b"\x7fFLAC":
            pages[-1] = (pages[-1][0], pages[-1][1], page.end)
        else:
            pages.append((page.start, page.body, page.end))
    close()
    if others:
        result.missing = result.missing or "holds several sounds at once, of which the first is read"
    if not result.links:
        return Plan([Link(data)], result.missing, result.notes)
    return result


def _pages(data: Pieces, at: int, result: Plan) -> Iterator[Page]:
    lost = 0
    while at < data.size:
        head = data.at(at, 27 + 255)
        if head[:4] != b"OggS":
            found = _next(data, at + 1)
            lost += found - at
            at = found
            continue
        n = head[26] if len(head) > 26 else 0
        end = at + 27 + n + sum(head[27 : 27 + n])
        if len(head) < 27 + n or end > data.size:
            result.missing = "is cut short: its last page is not whole"
            return
        yield Page(at, at + 27 + n, end, head[5], struct.unpack("<I", head[14:18])[0])
        at = end
    if lost and data.size - lost < data.size:
        result.missing = result.missing or f"{lost} bytes between its pages are no sound that can be read"


def _next(data: Pieces, at: int) -> int:
    while at < data.size:
        block = data.at(at, SEARCH)
        i = block.find(b"OggS")
        if i >= 0:
            return at + i
        at += max(1, len(block) - 3)
    return data.size


def _link(data: Pieces, pages: list[tuple[int, int, int]], kind: bytes, last: Page) -> Link:
    if kind == b"\x7fFLAC":
        bodies: list[Piece] = [(body, end) for _, body, end in pages]
        bodies[0] = (pages[0][1] + 9, pages[0][2])
        return flac.plan(Pieces(data, bodies), 0).links[0]
    pieces: list[Piece] = [(start, end) for start, _, end in pages]
    if not last.flags & 4:
        pieces[-1] = (pages[-1][0], last.start)
        pieces.append(_ended(data.at(last.start, last.end - last.start)))
    return Link(Pieces(data, pieces))


def _ended(page: bytes) -> bytes:
    """The page with the mark of a last page, and its checksum."""
    page = page[:5] + bytes([page[5] | 4]) + page[6:22] + bytes(4) + page[26:]
    crc = 0
    for byte in page:
        crc = (crc << 8 & 0xFFFFFFFF) ^ TABLE[crc >> 24 ^ byte]
    return page[:22] + struct.pack("<I", crc) + page[26:]


def _table() -> list[int]:
    table = []
    for i in range(256):
        r = i << 24
        for _ in range(8):
            r = (r << 1 ^ 0x04C11DB7 if r & 0x80000000 else r << 1) & 0xFFFFFFFF
        table.append(r)
    return table


TABLE = _table()  # of the checksum of Ogg pages: polynomial 0x04C11DB7, not reflected
