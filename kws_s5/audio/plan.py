"""What there is to decode in a file, found by walking through it: headers are believed only as far as the file goes.

A plan is a list of links, decoded one after the other: chained Ogg streams and joined mp3 files have several.
"""

from dataclasses import dataclass, field

from kws_s5.audio.pieces import Pieces


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
