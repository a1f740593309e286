"""Files and folders named on a command line -> the recordings to listen to, and what of the folders is left out.

Nothing in a folder is passed over in silence: what is not listened to is counted by kind. Hidden files (of macOS, of
waste bins) are no recordings.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kws_s5.audio import ffmpeg
from kws_s5.audio.files import SUFFIXES
from kws_s5.audio.samples import shown
from kws_s5.errors import UserError


@dataclass(frozen=True)
class Recordings:
    """What was found."""

    files: list[Path]  # in order; may be unreadable, which is told when their turn comes
    left_out: str  # one line for people; empty: nothing
    unread: bool  # whether something was left out that may hold sound


def recordings(given: Sequence[Path]) -> Recordings:
    """The files named, and those in the folders named. Raises UserError for a folder without any."""
    files: list[Path] = []
    others: Counter[str] = Counter()
    for path in given:
        try:
            path = path.expanduser()
        except RuntimeError:
            raise UserError(f"{shown(path)}: there is no such user; write the path out") from None
        if not path.is_dir():
            files.append(path)
            continue
        here: Counter[str] = Counter()
        inside = _inside(path, here)
        if not inside:
            kinds = _in_words(here)
            raise UserError(
                f"{shown(path)}: holds no recordings"
                + (f" that can be read, but {kinds}; {_mend(here)}" if kinds else "")
            )
        files += inside
        others += here
    if not files:
        raise UserError("no recordings: kws-scan FILES..., see kws-scan --help")
    kinds = _in_words(others)
    return Recordings(files, f"not scanned: {kinds}; {_mend(others)}" if kinds else "", bool(kinds))


def _inside(folder: Path, others: Counter[str]) -> list[Path]:
    """The recordings below a folder, sorted; what is left out is counted into ``others``."""
    files: list[Path] = []
    suffixes = SUFFIXES | ffmpeg.SUFFIXES if ffmpeg.installed() else SUFFIXES

    def refused(error: OSError) -> None:
        others["folder without permission"] += 1

    for place, folders, names in os.walk(folder, onerror=refused):
        kept = []
        for name in sorted(folders):
            if name.startswith("."):
                continue
            if os.path.islink(os.path.join(place, name)):
                others["linked folder"] += 1
            else:
                kept.append(name)
        folders[:] = kept
        for name in names:
            path, suffix = Path(place, name), os.path.splitext(name)[1].lower()
            if name.startswith("."):
                continue
            if suffix in suffixes:
                files.append(path)  # also broken links and pipes: they are told when their turn comes
            elif suffix in ffmpeg.SUFFIXES:
                others[suffix] += 1
    return sorted(files)


def _in_words(others: Counter[str]) -> str:
    def words(kind: str, n: int) -> str:
        if kind.startswith("."):
            return f"{n} {shown(kind)}"
        return f"{n} {kind.replace('folder', 'folders', 1) if n > 1 else kind}"

    return ", ".join(words(kind, n) for kind, n in others.most_common())


def _mend(others: Counter[str]) -> str:
    ways = []
    if any(kind.startswith(".") for kind in others):
        ways.append("install ffmpeg, or convert them to wav or flac")
    if "linked folder" in others:
        ways.append("name linked folders themselves")
    if "folder without permission" in others:
        ways.append("check permissions")
    return "; ".join(ways)
