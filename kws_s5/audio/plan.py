"""What there is to decode in a file, found by walking through it: headers are believed only as far as the file goes.

A plan is a list of links, decoded one after the other: chained Ogg streams and joined mp3 files have several.
"""

from dataclasses import dataclass, field

from kws_s5.audio.pieces import Pieces

# files that soundfile knows, which must not be searched for mp3 frames
OTHERS = (b"NIST_1A", b"Creative Voice", b"FORM", b"PVF1", b"2BIT", b"MATLAB", b"\x64\xa3",
          b"\x00\x00\xa3\x64", b"RIFF")


@dataclass(frozen=True)
class Link:
    """One stream for the decoder."""

    data: Pieces
    promised: int | None = None  # samples per channel that must come; None: as many as the decoder says
    open_end: bool = False  # the decoder's own number is not believed: read until nothing comes
    least: int = 0  # samples per channel that the file's header promises, where reading goes to the end


@dataclass
class Plan:
    """All of a file."""

    links: list[Link]
    missing: str = ""  # what the file lacks: told, and the recording does not count as whole
    notes: list[str] = field(default_factory=list)  # what the user should know, though nothing is missing
    whole: Pieces | None = None  # the file itself


def skip_id3(data: Pieces) -> int:
    """Where a file begins behind its ID3v2 tags."""
    at = 0
    while (head := data.at(at, 10))[:3] == b"ID3" and len(head) == 10 and max(head[6:10]) < 128:
        at += 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]) + (10 if head[5] & 16 else 0)
    return at if at < data.size else 0


def plan(data: Pieces) -> Plan:
    """The plan for a file."""
    from kws_s5.audio import flac, iff, mpeg, ogg, riff

    begin = skip_id3(data)
    magic = data.at(begin, 16)
    if magic[:4] in (b"RIFF", b"RF64", b"BW64", b"RIFX") and magic[8:12] == b"WAVE" or magic == riff.W64:
        return riff.plan(data, begin)
    if magic[:4] == b"OggS":
        return ogg.plan(data, begin)
    if magic[:4] == b"fLaC":
        return flac.plan(data, begin)
    if magic[:4] == b"FORM" and magic[8:12] in (b"AIFF", b"AIFC"):
        return iff.aiff(data, begin)
    if magic[:4] == b".snd":
        return iff.au(data, begin)
    if magic[:4] == b"caff":
        return iff.caf(data, begin)
    found = None if magic.startswith(OTHERS) else mpeg.plan(data, begin)
    return found or Plan([Link(data)])
