"""Wav files and their large kin (RIFF, RIFX, RF64, BW64, W64): where the sound is, by the chunks and the file's end.

A size field that wrapped (beyond 4 GiB), was never written (0) or counts the header too is set right: the sound goes on
to the end of the file, unless what follows are chunks. Sound that is missing is told.
"""

import struct

from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan

W64 = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
W64_TAIL = b"\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"  # of the names of its chunks
UNKNOWN_LENGTH = 0x7FFF0000  # headers written into a pipe claim this many bytes or more: the length is not known
SLACK = 8  # bytes that writers miscount: padding
MPEG_TAGS = (0x50, 0x55)  # formats of fmt: layers I and II, layer III
MAX_CHUNKS = 10_000


def plan(data: Pieces, begin: int) -> Plan:
    """A plan that shows libsndfile the sound under a header whose sizes are right."""
    from kws_s5.audio import mpeg

    head = data.at(begin, 12)
    w64, order = head[:4] == b"riff", ">" if head[:4] == b"RIFX" else "<"
    at, fmt, big, chunks = begin + (40 if w64 else 12), b"", 0, 0
    while at < data.size and chunks < MAX_CHUNKS:
        chunks += 1
        name, size, start = _chunk(data, at, w64, order)
        if name == b"ds64":
            sizes = data.at(start, 16)
            big = struct.unpack("<Q", sizes[8:16])[0] if len(sizes) == 16 else 0
        elif name == b"fmt ":
            fmt = data.at(start, min(size, 4096))
        elif name == b"data":
            break
        step = size + (-size % 8 if w64 else size % 2)
        at = start + step
    else:
        return Plan([Link(data)])
    if len(fmt) < 16 or not name:
        return Plan([Link(data)])
    if big and size >= 0xFFFFFFFF - 8:
        size = big
    there = data.size - start
    plan = Plan([])
    if size <= there:
        rest = start + size
        end = rest if rest + SLACK >= data.size or _chunks_from(data, rest, w64, order) else data.size
        if end != rest and size:
            plan.notes.append(
                f"its header counts {size} bytes of sound, but the sound goes on to the end of the file, "
                f"{there} bytes: all of it is read"
            )
    else:
        end = data.size
        if size - there > max(start - begin, SLACK) and not _unknown(size, w64):
            plan.missing = f"is cut short, {there} of {size} bytes of sound are there"
    tag, _, _, _, block, _ = struct.unpack(order + "HHIIHH", fmt[:16])
    if tag in MPEG_TAGS:
        inner = Pieces(data, [(start, end)])
        found = mpeg.plan(inner, 0)
        if found:
            found.missing, found.notes = found.missing or plan.missing, found.notes + plan.notes
            return found
    if block and tag in (1, 3, 6, 7, 0xFFFE):  # whole frames only; compressed formats know their blocks
        end -= (end - start) % block
    if end == start + size and not w64 and head[:4] in (b"RIFF", b"RIFX") and not begin:
        return Plan([Link(data)], plan.missing, plan.notes)
    if end <= start:
        return Plan([Link(data)], plan.missing, plan.notes)
    plan.links.append(Link(Pieces(data, [_header(fmt, end - start, order), (start, end)])))
    return plan


def _unknown(size: int, w64: bool) -> bool:
    """Whether a size means that the writer did not know it; such numbers are near 2 or 4 GiB, or 0."""
    return size >= 1 << 62 if w64 else UNKNOWN_LENGTH <= size <= 0x80000000 or 0xFFFF0000 <= size < 1 << 32


def _chunk(data: Pieces, at: int, w64: bool, order: str) -> tuple[bytes, int, int]:
    """Name, size and start of the content of the chunk at ``at``; an empty name: there is none."""
    head = data.at(at, 24 if w64 else 8)
    if len(head) < (24 if w64 else 8):
        return b"", 0, data.size
    if w64:
        return head[:4], max(0, struct.unpack("<Q", head[16:24])[0] - 24), at + 24
    return head[:4], struct.unpack(order + "I", head[4:8])[0], at + 8


def _chunks_from(data: Pieces, at: int, w64: bool, order: str) -> bool:
    """Whether what follows the sound is no sound: chunks up to the end of the file, or a tag."""
    for _ in range(MAX_CHUNKS):
        if data.size - at <= SLACK:
            return True
        if data.at(at, 3) in (b"TAG", b"ID3") or data.at(at, 8) == b"APETAGEX":
            return True
        if not w64 and data.at(at, 1) == b"\0" and data.at(at + 1, 4).isalpha():  # padding of an odd size
            at += 1
        name, size, start = _chunk(data, at, w64, order)
        if len(name) != 4 or not all(32 <= c < 127 for c in name):
            return False
        if w64 and data.at(at + 4, 12) != W64_TAIL and name != b"levl":
            return False
        if start + size > data.size + SLACK:
            return False
        at = start + size + (-size % 8 if w64 else size % 2)
    return True


def _header(fmt: bytes, n: int, order: str) -> bytes:
    """A wav header for n bytes of sound: RF64 where 32 bits cannot count them."""
    fmt_chunk = b"fmt " + struct.pack(order + "I", len(fmt)) + fmt + b"\0" * (len(fmt) % 2)
    total = 4 + len(fmt_chunk) + 8 + n
    if n < 0x7FFFFFF0:
        form = b"RIFX" if order == ">" else b"RIFF"
        return form + struct.pack(order + "I", total) + b"WAVE" + fmt_chunk + b"data" + struct.pack(order + "I", n)
    block = max(1, struct.unpack(order + "H", fmt[12:14])[0])
    ds64 = b"ds64" + struct.pack("<IQQQI", 28, total + 36, n, n // block, 0)
    return b"RF64\xff\xff\xff\xffWAVE" + ds64 + fmt_chunk + b"data\xff\xff\xff\xff"
