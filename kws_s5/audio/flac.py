"""FLAC files: read to their end, whatever number of samples the header gives."""

from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan

TOTAL = 21  # byte of STREAMINFO's 36-bit number of samples, from "fLaC" on: 4 bits here, then 4 bytes


def plan(data: Pieces, begin: int) -> Plan:
    """The header is shown without its number of samples, which makes the decoder read on; what comes is counted."""
    head = bytearray(data.at(begin, 26))
    if len(head) < 26:
        return Plan([Link(data)])
    promised = (head[TOTAL] & 0x0F) << 32 | int.from_bytes(head[22:26], "big")
    head[TOTAL] &= 0xF0
    head[22:26] = bytes(4)
    return Plan([Link(Pieces(data, [bytes(head), (begin + 26, data.size)]), open_end=True, least=promised)])
