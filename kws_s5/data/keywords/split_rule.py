"""Which clip is for training, validation or test: official lists, else the sha1 rule of Speech Commands.

Rule (Warden 2018, "Speech Commands", section 7): percent = (sha1(part of the name before _nohash_) mod 2^27) * 100 /
(2^27 - 1); below validation_percent: validation, below validation + test: test, else train. So all clips of a
speaker fall on one side, and adding clips never moves another one. Names without _nohash_ are hashed whole (by file).
Where few speakers or files leave a split empty, they are dealt out in the order of the same hash instead.
"""

import hashlib
import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kws_s5.audio.files import SUFFIXES
from kws_s5.audio.samples import shown
from kws_s5.errors import UserError

SPLITS = ("train", "validation", "test")
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
MAX_NUM_WAVS_PER_CLASS = 2**27 - 1


@dataclass(frozen=True)
class Assignment:
    """The split of every clip, and how it was found."""

    splits: list[str]
    rule: str  # in words, for reports
    by_speaker: bool  # no speaker is on two sides
    notes: list[str]


def speaker_of(stem: str) -> str:
    """The part of a file name before _nohash_; "" where the name does not tell."""
    speaker, mark, _ = stem.partition("_nohash_")
    return speaker if mark else ""


def sha1_percent(name: str) -> float:
    """The published hash of ``name``, in [0, 100]."""
    number = int(hashlib.sha1(name.encode("utf-8", "surrogateescape")).hexdigest(), 16)
    return number % (MAX_NUM_WAVS_PER_CLASS + 1) * (100.0 / MAX_NUM_WAVS_PER_CLASS)


def recording(id: str) -> str:
    """An id or list entry without what differs between systems: separators, ./, Unicode form, audio suffix."""
    text = unicodedata.normalize("NFC", id.strip()).replace("\\", "/")
    stem, suffix = posixpath.splitext(posixpath.normpath(text))
    return stem if suffix.lower() in SUFFIXES else stem + suffix


def read_lists(root: Path) -> dict[str, str]:
    """Entries of the official lists of ``root`` (recording -> split); {} without lists."""
    split_of: dict[str, str] = {}
    for split, file in LISTS.items():
        path = root / file
        if not path.is_file():
            continue
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{shown(path)}: cannot be read as UTF-8 text; write one <word>/<file> a line") from error
        for line in filter(str.strip, lines):
            if split_of.setdefault(recording(line), split) != split:
                raise UserError(f"{shown(line.strip())}: stands in both {' and '.join(LISTS.values())}; keep it in one")
    return split_of


def assign(
    ids: Sequence[str], lists: dict[str, str], *, validation_percent: float = 10.0, test_percent: float = 10.0
) -> Assignment:
    """The split of every clip of a folder. ``ids`` are <word>/<file>; ``lists`` as from read_lists."""
    if lists:
        listed = [lists.get(recording(id)) for id in ids]
        if not any(listed):
            raise UserError(
                f"no entry of {' or '.join(LISTS.values())} ({len(lists)}) names a file of the folder; "
                "correct or remove the lists"
            )
        missing = len(lists.keys() - {recording(id) for id in ids})
        notes = [f"{missing} of {len(lists)} entries of the split lists have no file"] if missing else []
        return Assignment([split or "train" for split in listed], "official lists", False, notes)
    percent = {"validation": validation_percent, "test": test_percent}
    return _by_hash(ids, percent)


def _by_hash(ids: Sequence[str], percent: dict[str, float]) -> Assignment:
    words = [id.split("/")[0] for id in ids]
    stems = [posixpath.basename(recording(id)) for id in ids]
    speakers = [speaker_of(stem) for stem in stems]
    groups = [speaker or stem for speaker, stem in zip(speakers, stems, strict=True)]
    wanted = {"train"} | {split for split, share in percent.items() if share > 0}
    if not any(speakers):
        return _by_file(words, stems, percent, wanted)
    if len(set(groups)) < len(wanted):
        found = _by_file(words, stems, percent, wanted)
        warning = "too few speakers to hold one out: results say nothing about new speakers"
        return replace(found, notes=[warning, *found.notes])
    unit = "speaker" if all(speakers) else "speaker where the name tells, else by file"
    splits = [_plain(group, percent) for group in groups]
    if wanted <= set(splits):
        return Assignment(splits, f"sha1 rule by {unit}", True, [])
    dealt = _deal(set(groups), percent)
    shares = ", ".join(f"{list(dealt.values()).count(split)} for {split}" for split in SPLITS if split in wanted)
    return Assignment(
        [dealt[group] for group in groups],
        f"sha1 order by {unit}",
        True,
        [
            f"few speakers: {shares}; record more people, or deal the clips out yourself in "
            f"{' and '.join(LISTS.values())}"
        ],
    )


def _by_file(words: Sequence[str], stems: Sequence[str], percent: dict[str, float], wanted: set[str]) -> Assignment:
    files: dict[str, set[str]] = defaultdict(set)
    for word, stem in zip(words, stems, strict=True):
        files[word].add(stem)
    split_of, few = {}, []
    for word, names in sorted(files.items()):
        split_of[word] = {name: _plain(name, percent) for name in names}
        if not wanted <= set(split_of[word].values()):
            split_of[word] = _deal(names, percent)
            few.append(word)
    notes = [f"few recordings, dealt out so that no split is empty: {', '.join(few)}"] if few else []
    splits = [split_of[word][stem] for word, stem in zip(words, stems, strict=True)]
    return Assignment(splits, "sha1 rule by file", False, notes)


def _plain(name: str, percent: dict[str, float]) -> str:
    hashed = sha1_percent(name)
    if hashed < percent["validation"]:
        return "validation"
    return "test" if hashed < percent["validation"] + percent["test"] else "train"


def _deal(names: set[str], percent: dict[str, float]) -> dict[str, str]:
    """Shares of ``names`` in the order of their hash, one or more for each split; all to training where too few."""
    order = sorted(names, key=lambda name: (sha1_percent(name), name))
    counts = {split: max(1, round(len(order) * share / 100)) for split, share in percent.items() if share > 0}
    if sum(counts.values()) >= len(order):
        return dict.fromkeys(order, "train")
    dealt = [split for split, count in counts.items() for _ in range(count)]
    return dict(zip(order, dealt + ["train"] * (len(order) - len(dealt)), strict=True))
