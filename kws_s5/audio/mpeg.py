"""mp3 files: frame by frame, so that their length is counted, not guessed from the first frame or a header.

Files joined one behind the other become links of their own. Each link is shown with a Xing frame of ours, which holds
the counted number of frames, unless its own says the same. Source: ISO 11172-3 (frame header), Xing/LAME tag.
"""

import struct
from dataclasses import dataclass

from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan, skip_id3

RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}  # by version bits: 1, 2, 2.5
V1 = {
    3: (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    2: (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
}  # kbit/s by layer bits (3 = I, 1 = III)
V2 = {
    3: (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
V2[1] = V2[2]
BLOCK = 1 << 18  # bytes read at a time
SEARCH = 1 << 16  # bytes in which the first frame must be found
MIXES = 0xFFFE0C00  # bits of a header that stay the same within one stream: version, layer, rate


@dataclass(frozen=True)
class Frame:
    """What a frame header says."""

    size: int  # bytes
    samples: int
    key: tuple[int, int, bool]  # version, rate, one channel
    layer3: bool
    side: int  # bytes of side information


@dataclass
class Segment:
    """Frames of one stream that follow each other."""

    start: int
    frame: Frame
    head: bytes  # the first frame's bytes that may hold a Xing or VBRI tag
    count: int = 0
    end: int = 0


def frame_of(head: int) -> Frame | None:
    """The frame of a 32-bit header; None: it is none."""
    version, layer, rate, bits = head >> 19 & 3, head >> 17 & 3, head >> 10 & 3, head >> 12 & 15
    if head >> 21 != 0x7FF or version == 1 or layer == 0 or rate == 3 or bits in (0, 15):
        return None
    kbit = (V1 if version == 3 else V2)[layer][bits]
    hertz, pad = RATES[version][rate], head >> 9 & 1
    if layer == 3:
        size, samples = (12000 * kbit // hertz + pad) * 4, 384
    else:
        samples = 576 if layer == 1 and version != 3 else 1152
        size = samples // 8 * 1000 * kbit // hertz + pad
    one = head >> 6 & 3 == 3
    side = (17 if one else 32) if version == 3 else (9 if one else 17)
    return Frame(size, samples, (version, hertz, one), layer == 1, side)


def plan(data: Pieces, begin: int) -> Plan | None:
    """The links of an mp3 file; None: it is no such file."""
    segments, lost, tail = _walk(data, begin)
    if not segments or sum(s.count for s in segments) < 1:
        return None
    result, missing = Plan([]), 0
    for segment in segments:
        link, absent = _link(data, segment, tail and segment is segments[-1])
        if link:
            result.links.append(link)
        missing += absent
    if missing > 0:
        result.missing = f"is cut short, {missing} of its frames are missing"
    elif lost:
        result.missing = f"{lost} bytes between its frames are no sound that can be read"
    elif tail:
        result.notes.append("ends within a frame: it may have been cut short")
    return result if result.links else None


def _walk(data: Pieces, begin: int) -> tuple[list[Segment], int, bool]:
    """Segments, bytes between them that are neither frames nor tags, and whether the file ends within a frame."""
    table: dict[int, Frame | None] = {}
    segments: list[Segment] = []
    at, lost, base, block = begin, 0, begin, b""
    current: Segment | None = None
    size = data.size
    while at + 4 <= size:
        i = at - base
        if not 0 <= i <= len(block) - 4:
            base, block, i = at, data.at(at, BLOCK), 0
            if len(block) < 4:
                break
        head = int.from_bytes(block[i : i + 4], "big")
        frame = table[head] if head in table else table.setdefault(head, frame_of(head))
        if frame and at + frame.size <= size and (current is not None or _followed(data, at, frame)):
            if current is None or frame.key != current.frame.key or _tagged(data, block, i, at, frame):
                current = Segment(at, frame, data.at(at, min(frame.size, 256)))
                segments.append(current)
            current.count += 1
            at += frame.size
            current.end = at
            continue
        if frame and at + frame.size > size and segments:
            return segments, lost, True
        found = _tag(data, at)
        if not found:
            found = _search(data, at + 1, size if segments else min(size, begin + SEARCH))
            if found < 0:
                rest = data.at(at, 4096)
                lost += (size - at) if segments and rest.strip(b"\0 ") else 0
                break
            lost += found - at if segments and data.at(at, min(found - at, 1 << 20)).strip(b"\0") else 0
        at, current = found, None
        block = b""
    return segments, lost, False


def _tagged(data: Pieces, block: bytes, i: int, at: int, frame: Frame) -> bool:
    """Whether the frame holds the tag that begins a file."""
    j = i + 4 + frame.side
    tag = block[j : j + 4] if j + 4 <= len(block) else data.at(at + 4 + frame.side, 4)
    return frame.layer3 and tag in (b"Xing", b"Info")


def _followed(data: Pieces, at: int, frame: Frame) -> bool:
    """Whether a second frame of the same stream follows, a tag, or the file's end: four bytes alone may be chance."""
    if at + frame.size >= data.size - 4:
        return True
    second = frame_of(int.from_bytes(data.at(at + frame.size, 4), "big"))
    return second is not None and second.key[:2] == frame.key[:2] or bool(_tag(data, at + frame.size))


def _search(data: Pieces, at: int, end: int) -> int:
    """Where the next frame begins; -1: nowhere."""
    while at < end:
        block = data.at(at, min(SEARCH, end - at + 3))
        i = block.find(b"\xff")
        while i >= 0:
            frame = frame_of(int.from_bytes(block[i : i + 4].ljust(4, b"\0"), "big"))
            if frame and at + i + frame.size < data.size - 4 and _followed(data, at + i, frame):
                return at + i
            i = block.find(b"\xff", i + 1)
        at += max(1, len(block) - 3)
    return -1


def _tag(data: Pieces, at: int) -> int:
    """Where a tag between or behind frames ends; 0: there is none."""
    head = data.at(at, 32)
    if head[:3] == b"ID3":
        inner = Pieces(data, [(at, data.size)])
        return at + skip_id3(inner) if skip_id3(inner) else 0 if inner.size > 1 << 20 else data.size
    if head[:3] == b"TAG":
        return min(data.size, at + 128)
    if head[:8] == b"APETAGEX" and len(head) == 32:
        n, flags = struct.unpack("<I4xI", head[12:24])
        return min(data.size, at + n + (32 if flags >> 31 or not flags >> 29 & 1 else 0)) if n < 1 << 28 else 0
    if head[:11] == b"LYRICSBEGIN":
        return data.size
    return 0


def _link(data: Pieces, segment: Segment, cut: bool) -> tuple[Link | None, int]:
    """A link and the number of frames that are missing from it; ``cut``: the file ends within a frame."""
    frame, head = segment.frame, segment.head
    if not frame.layer3:
        return Link(Pieces(data, [(segment.start, segment.end)]), promised=segment.count * frame.samples), 0
    at = 4 + frame.side
    xing, vbri = head[at : at + 4] in (b"Xing", b"Info"), head[36:40] == b"VBRI"
    claimed = 0
    if xing and len(head) >= at + 12 and head[at + 7] & 1:
        claimed = int.from_bytes(head[at + 8 : at + 12], "big")
    if vbri and len(head) >= 54:
        claimed = int.from_bytes(head[50:54], "big")
    count = segment.count - (xing or vbri)
    missing = max(0, claimed - count)
    if missing == 1 and not cut:  # some writers count the tag's own frame
        missing = 0
    if count < 1:
        return None, missing
    if xing and claimed == count:
        return Link(Pieces(data, [(segment.start, segment.end)])), 0
    start = segment.start + (frame.size if xing or vbri else 0)
    pieces = Pieces(data, [_xing(head, frame, count), (start, segment.end)])
    return Link(pieces, promised=count * frame.samples), missing


def _xing(head: bytes, frame: Frame, count: int) -> bytes:
    """A frame that says how many frames follow."""
    first = int.from_bytes(head[:4], "big") | 1 << 16  # no checksum
    for bits in range(1, 15):
        word = first & ~(0xF << 12) & ~(1 << 9) | bits << 12
        made = frame_of(word)
        if made and made.size >= 4 + frame.side + 12:
            tag = word.to_bytes(4, "big") + bytes(frame.side) + b"Xing" + struct.pack(">II", 1, count)
            return tag.ljust(made.size, b"\0")
    return b""
