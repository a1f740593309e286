"""Which of the formats a file is in, and so who plans what there is to decode."""

from kws_s5.audio import flac, iff, mpeg, ogg, riff
from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan, skip_id3

# files that soundfile knows, which must not be searched for mp3 frames
OTHERS = (
    b"NIST_1A",
    b"Creative Voice",
    b"FORM",
    b"PVF1",
    b"2BIT",
    b"MATLAB",
    b"\x64\xa3",
    b"\x00\x00\xa3\x64",
    b"RIFF",
)


def plan(data: Pieces) -> Plan:
    """The plan for a file, by its first bytes."""
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
