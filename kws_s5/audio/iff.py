"""AIFF, AU and CAF files: their size fields are held against the end of the file, as those of wav files are."""

import struct

from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan

SLACK = 8
UNKNOWN_LENGTH = 0x7FFF0000
PLAIN = {
    b"NONE": 0,
    b"sowt": 0,
    b"twos": 0,
    b"fl32": 32,
    b"FL32": 32,
    b"fl64": 64,
    b"FL64": 64,
    b"ulaw": 8,
    b"ULAW": 8,
    b"alaw": 8,
    b"ALAW": 8,
    b"in24": 24,
    b"in32": 32,
    b"raw ": 8,
}  # bits a sample; 0: as COMM says


def aiff(data: Pieces, begin: int) -> Plan:
    """Sizes of SSND and frames of COMM, set to what the file holds."""
    compressed = data.at(begin + 8, 4) == b"AIFC"
    at, comm, ssnd = begin + 12, None, None
    for _ in range(10_000):
        head = data.at(at, 8)
        if len(head) < 8:
            break
        name, size = head[:4], struct.unpack(">I", head[4:])[0]
        if name == b"COMM":
            comm = at + 8
        if name == b"SSND":
            ssnd = (at + 8, size)
            if comm or size == 0:
                break
        at += 8 + size + size % 2
    if comm is None or ssnd is None or len(fields := data.at(comm, 22)) < 18:
        return Plan([Link(data)])
    channels, frames, bits = struct.unpack(">HIH", fields[:8])
    kind = fields[18:22] if compressed else b"NONE"
    start, size = ssnd
    offset = struct.unpack(">I", data.at(start, 4).ljust(4, b"\0"))[0]
    frame = channels * (((PLAIN.get(kind, 0) or bits) + 7) // 8)
    if kind not in PLAIN or not frame or start + 8 + offset > data.size:
        return Plan([Link(data)])
    first = start + 8 + offset
    there = data.size - first
    claimed = size - 8 - offset
    wanted = max(claimed, frames * frame)
    if claimed > 0 and claimed <= there and _named(data, start + size + size % 2):
        there = claimed
    notes: list[str] = []
    missing = ""
    if SLACK + first - begin < wanted - there and wanted < UNKNOWN_LENGTH:
        missing = f"is cut short, {there} of {wanted} bytes of sound are there"
    n = there // frame
    if n == frames and claimed == there or n <= 0 or there >= 1 << 32:
        if there >= 1 << 32:
            missing = f"is longer than its format can say: {there} bytes of sound, of which {claimed} are read"
        return Plan([Link(data)], missing, notes)
    if frames and n > frames + SLACK:
        notes.append(f"its header counts {frames} samples, but {n} are there: all of them are read")
    front = bytearray(data.at(begin, first - begin)) if first - begin < 1 << 20 else None
    if front is None or comm > first:
        return Plan([Link(data)], missing, notes)
    struct.pack_into(">I", front, comm - begin + 2, n)
    struct.pack_into(">I", front, start - begin - 4, min(n * frame + 8 + offset, 0xFFFFFFFF))
    struct.pack_into(">I", front, 4, min(len(front) - 8 + n * frame, 0xFFFFFFFF))
    return Plan([Link(Pieces(data, [bytes(front), (first, first + n * frame)]))], missing, notes)


def _named(data: Pieces, at: int) -> bool:
    """Whether the file ends here, or a chunk follows that ends within it."""
    head = data.at(at, 8)
    if len(head) < 8:
        return True
    return all(32 <= c < 127 for c in head[:4]) and at + 8 + struct.unpack(">I", head[4:])[0] <= data.size + SLACK


def au(data: Pieces, begin: int) -> Plan:
    """Sound goes to the end of the file: nothing can follow it in this format."""
    head = data.at(begin, 24)
    if len(head) < 24:
        return Plan([Link(data)])
    first, claimed = struct.unpack(">II", head[4:12])
    there = data.size - begin - first
    if first < 24 or there <= 0:
        return Plan([Link(data)])
    notes: list[str] = []
    missing = ""
    if there + max(first, SLACK) < claimed < UNKNOWN_LENGTH:
        missing = f"is cut short, {there} of {claimed} bytes of sound are there"
    if claimed + SLACK < there and claimed:
        notes.append(f"its header counts {claimed} bytes of sound, but {there} are there: all of them are read")
    fixed = head[:8] + struct.pack(">I", min(there, 0xFFFFFFFF)) + head[12:]
    return Plan([Link(Pieces(data, [fixed, (begin + 24, data.size)]))], missing, notes)


def caf(data: Pieces, begin: int) -> Plan:
    """A data chunk whose size is unknown (-1) or was never written (0) goes to the end of the file."""
    at = begin + 8
    for _ in range(10_000):
        head = data.at(at, 12)
        if len(head) < 12:
            break
        size = struct.unpack(">q", head[4:])[0]
        if head[:4] == b"data":
            there = data.size - at - 12
            if size > there + SLACK:
                fixed = data.at(begin, at + 4 - begin) + struct.pack(">q", max(4, there))
                return Plan(
                    [Link(Pieces(data, [fixed, (at + 12, data.size)]))],
                    f"is cut short, {max(0, there - 4)} of {size - 4} bytes of sound are there",
                )
            if size > 4 and size <= there and (there - size <= SLACK or _caf_chunk(data, at + 12 + size)):
                return Plan([Link(data)])
            if there <= 4 or at + 4 > 1 << 20 or 0 <= size <= 4 and _caf_chunk(data, at + 12 + size):
                return Plan([Link(data)])
            fixed = data.at(begin, at + 4 - begin) + struct.pack(">q", there)
            notes = [f"its header counts {size} bytes of sound, but {there} are there: all of them are read"]
            return Plan([Link(Pieces(data, [fixed, (at + 12, data.size)]))], notes=notes if size > 4 else [])
        if size < 0:
            break
        at += 12 + size
    return Plan([Link(data)])


def _caf_chunk(data: Pieces, at: int) -> bool:
    head = data.at(at, 12)
    return (
        len(head) == 12
        and all(32 <= c < 127 for c in head[:4])
        and 0 <= struct.unpack(">q", head[4:])[0] <= data.size - at
    )
