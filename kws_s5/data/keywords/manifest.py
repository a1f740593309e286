"""A folder of recordings as a list: root/<word>/<clip>, one level deep, each clip with its speaker and its split.

Nothing is decoded here. Hidden files and folders are skipped, links are followed to files but never walked in circles,
and every file with the suffix of a recording is listed, readable or not, so that nothing disappears silently.
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kws_s5.audio.files import SUFFIXES
from kws_s5.audio.samples import shown
from kws_s5.data.keywords.split_rule import assign, read_lists, recording, speaker_of
from kws_s5.errors import UserError

BACKGROUND = "_background_noise_"
UNKNOWN, SILENCE = "_unknown_", "_silence_"  # also folder names: recordings of other words, of no words
SPLIT_FOLDERS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"}


@dataclass(frozen=True, slots=True)
class Clip:
    """One file. ``id`` is its path below the root with / between folder and file; ids from disk may hold any byte."""

    id: str
    word: str
    speaker: str  # "" where the name does not tell
    split: str  # train | validation | test
    size: int  # bytes; -1: cannot be looked at
    modified: int  # nanoseconds


@dataclass(frozen=True)
class Manifest:
    """What a folder holds."""

    root: Path
    clips: tuple[Clip, ...]  # in the order of their ids
    noises: tuple[Clip, ...]  # recordings of _background_noise_
    rule: str  # how the splits were found
    notes: tuple[str, ...]  # what the user should know: files left out, few speakers, ...
    empty: tuple[str, ...] = ()  # folders without a recording, and what they hold instead

    @property
    def words(self) -> tuple[str, ...]:
        """All folders of recordings, sorted."""
        return tuple(sorted({clip.word for clip in self.clips}))


def scan(root: str | Path, *, validation_percent: float = 10.0, test_percent: float = 10.0) -> Manifest:
    """Lists the recordings below ``root`` and deals them into splits (see split_rule).

    Raises:
        UserError: no such folder, no recordings in it, or lists that contradict themselves.
    """
    root = Path(root).expanduser()
    if not root.is_dir():
        raise UserError(f"{shown(root)}: no such folder; give the folder that holds one folder of recordings per word")
    others: Counter[str] = Counter()
    files: list[tuple[str, str, int, int]] = []
    empty: list[str] = []
    for word in _folders(root):
        here: Counter[str] = Counter()
        found = _recordings(root, word, here)
        if not found and word != BACKGROUND:
            kinds = ", ".join(f"{n} {shown(suffix)}" for suffix, n in here.most_common(3))
            empty.append(f"{shown(word)} ({kinds or 'empty'})")
        files += found
        others += here
    noises = tuple(
        Clip(id, word, "", "train", size, modified) for id, word, size, modified in files if word == BACKGROUND
    )
    files = [file for file in files if file[1] != BACKGROUND]
    if not files:
        raise UserError(f"{shown(root)}: {_why_nothing(root)}")
    dealt = assign(
        [file[0] for file in files], read_lists(root), validation_percent=validation_percent, test_percent=test_percent
    )
    clips = tuple(
        Clip(id, word, speaker_of(os.path.basename(recording(id))), split, size, modified)
        for (id, word, size, modified), split in zip(files, dealt.splits, strict=True)
    )
    check_disjoint(clips, by_speaker=dealt.by_speaker)
    return Manifest(root, clips, noises, dealt.rule, (*dealt.notes, *_left_out(others)), tuple(empty))


def check_disjoint(clips: tuple[Clip, ...], *, by_speaker: bool) -> None:
    """No recording, and with ``by_speaker`` no speaker, is in two splits; a broken rule stops here."""
    split_of: dict[str, str] = {}
    for clip in clips:
        keys = [recording(clip.id)] + (["speaker " + clip.speaker] if by_speaker and clip.speaker else [])
        for key in keys:
            assert split_of.setdefault(key, clip.split) == clip.split, f"{key} is in {clip.split} and {split_of[key]}"


def shared_speakers(clips: tuple[Clip, ...]) -> list[str]:
    """Speakers heard in more than one split (official lists of one's own may do that)."""
    splits: dict[str, set[str]] = {}
    for clip in clips:
        if clip.speaker:
            splits.setdefault(clip.speaker, set()).add(clip.split)
    return sorted(speaker for speaker, found in splits.items() if len(found) > 1)


def _folders(root: Path) -> list[str]:
    names = []
    with _listed(root) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and _is_folder(entry):
                if entry.name != shown(entry.name):
                    raise UserError(f"{shown(entry.path)}: this folder name cannot be a label; rename it in plain text")
                names.append(entry.name)
    return sorted(names)


def _recordings(root: Path, word: str, others: Counter[str]) -> list[tuple[str, str, int, int]]:
    """(id, word, size, modified) of the recordings in one folder; counts the other files by suffix into ``others``."""
    found = []
    with _listed(root / word) as entries:
        for entry in entries:
            suffix = os.path.splitext(entry.name)[1].lower()
            if entry.name.startswith("."):
                continue
            if suffix not in SUFFIXES:
                others["folders" if _is_folder(entry) else suffix or "no suffix"] += 1
                continue
            try:
                status = entry.stat()
                found.append((f"{word}/{entry.name}", word, status.st_size, status.st_mtime_ns))
            except OSError:  # a broken or circular link: listed, reported as unreadable when it is decoded
                found.append((f"{word}/{entry.name}", word, -1, 0))
    return sorted(found)


def _listed(folder: Path):  # noqa: ANN202 - os.scandir's iterator has no public name
    try:
        return os.scandir(folder)
    except OSError as error:
        raise UserError(f"{shown(folder)}: cannot be listed ({error.strerror}); check its permissions") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False


def _why_nothing(root: Path) -> str:
    names = {name.lower() for name in _folders(root)}
    if names & SPLIT_FOLDERS and names <= SPLIT_FOLDERS | {BACKGROUND}:
        return (
            "holds ready-made splits; put the word folders directly below it and name the clips of the splits in "
            "validation_list.txt and testing_list.txt"
        )
    with _listed(root) as entries:
        if any(os.path.splitext(entry.name)[1].lower() in SUFFIXES for entry in entries):
            return "has recordings but no word folders; sort them into <word>/<clip>.wav"
    return "no recordings found; they belong in <word>/<clip>.wav (wav, flac, ogg or mp3)"


def _left_out(others: Counter[str]) -> list[str]:
    if not others:
        return []
    kinds = ", ".join(f"{n} {shown(suffix)}" for suffix, n in others.most_common(6))
    return [f"not read inside the word folders: {kinds}"]
