"""What a folder of recordings holds and what to do about it before training: numbers from the decoded clips, as JSON.

A finding is a problem (results would be wrong or clips are lost) or advice.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from kws_s5.audio.samples import shown
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN, Clip, Manifest, shared_speakers
from kws_s5.data.keywords.split_rule import SPLITS
from kws_s5.data.keywords.store import Store

SILENT_PEAK = 1e-3  # -60 dB of full scale
CLIPPED_SHARE = 0.005  # of the samples
SHORTEST, LONGEST = 0.1, 1.05  # seconds; a word takes about half a second
FEW_CLIPS, FEW_SPEAKERS, IMBALANCE = 20, 10, 5.0
FEW_HELD_OUT = 20  # clips of a split: fewer than these, and the 95 % interval of its accuracy spans 17 % or more
EXAMPLES = 5  # named on the screen; the JSON file names all


@dataclass(frozen=True)
class Finding:
    """Something to know: what, how often, where, and how to mend it."""

    kind: str
    level: str  # problem | advice
    text: str
    advice: str
    clips: list[str] = field(default_factory=list)  # printable ids


def survey(manifest: Manifest, store: Store) -> dict[str, Any]:
    """The whole report as plain JSON values: totals, words, rates, channels, seconds, findings."""
    clips = [clip for clip in manifest.clips if store.readable(clip.id)]
    index = store.index[[store.rows[clip.id] for clip in clips]] if clips else store.index[:0]
    seconds = index["length"] / np.maximum(index["rate"], 1.0)
    words = _words(manifest.clips, clips, seconds)
    findings = [
        *_files(manifest, store),
        *_sound(clips, index, seconds),
        *_duplicates(clips, index),
        *_balance(words),
        *_speakers(manifest),
        *_folder(manifest),
    ]
    return {
        "folder": shown(manifest.root),
        "split_rule": manifest.rule,
        "clips": len(manifest.clips),
        "readable": len(clips),
        "noises": len(manifest.noises),
        "hours": round(float(seconds.sum()) / 3600, 4),
        "speakers": len({clip.speaker for clip in manifest.clips} - {""}),
        "rates": _counts(index["rate"]),
        "channels": _counts(index["channels"]),
        "seconds": {
            name: round(float(np.quantile(seconds, q)), 3) if clips else 0.0
            for name, q in (("shortest", 0), ("median", 0.5), ("longest", 1))
        },
        "words": words,
        "findings": [asdict(finding) for finding in findings],
    }


def _words(everything: Sequence[Clip], readable: Sequence[Clip], seconds: np.ndarray) -> dict[str, dict[str, Any]]:
    words: dict[str, dict[str, Any]] = {}
    of_word = defaultdict(list)
    for clip, length in zip(readable, seconds.tolist(), strict=True):
        of_word[clip.word].append(length)
    for word, clips in _grouped(everything, lambda clip: clip.word).items():
        splits = Counter(clip.split for clip in clips)
        words[word] = {
            "clips": len(clips),
            "unreadable": len(clips) - len(of_word[word]),
            "speakers": len({clip.speaker for clip in clips} - {""}),
            "seconds": round(float(np.median(of_word[word])), 3) if of_word[word] else 0.0,
            **{split: splits[split] for split in SPLITS},
        }
    return words


def _files(manifest: Manifest, store: Store) -> Iterable[Finding]:
    if store.failures:
        yield Finding(
            "unreadable",
            "problem",
            f"{len(store.failures)} files cannot be read",
            "get them again or remove them; training leaves them out and says so",
            [shown(reason) for reason in store.failures.values()],
        )
    lost = words_lost(manifest, store)
    if lost:
        yield Finding(
            "vanished",
            "problem",
            f"folders without a recording that can be read: {', '.join(lost)}",
            "convert or get their recordings again, or remove the folders: no model will know these words",
        )
    for note in manifest.notes:
        yield Finding("folder", "advice", note, "check that this is meant")


def words_lost(manifest: Manifest, store: Store) -> list[str]:
    """Words of which nothing can be learnt, and why: no recordings, or none that can be read."""
    n, failed = Counter(clip.word for clip in manifest.clips), Counter(id.split("/")[0] for id in store.failures)
    return [*manifest.empty, *(f"{shown(word)} ({n[word]} unreadable)" for word in n if failed[word] == n[word])]


def _sound(clips: Sequence[Clip], index: np.ndarray, seconds: np.ndarray) -> Iterable[Finding]:
    def where(mask: np.ndarray) -> list[str]:
        return [shown(clips[i].id) for i in np.flatnonzero(mask)]

    words = np.array([clip.word != SILENCE for clip in clips], dtype=bool)
    silent = where((index["peak"] < SILENT_PEAK) & words)
    if silent:
        yield Finding(
            "silent",
            "problem",
            f"{len(silent)} clips are silent (below -60 dB)",
            f"record them again, or move them to {SILENCE}",
            silent,
        )
    clipped = where(index["clipped"] > CLIPPED_SHARE)
    if clipped:
        yield Finding(
            "clipped",
            "advice",
            f"{len(clipped)} clips are overdriven (more than {CLIPPED_SHARE:.1%} of the samples at full scale)",
            "record at a lower level; a few of them do no harm",
            clipped,
        )
    short = where(seconds < SHORTEST)
    if short:
        yield Finding(
            "short",
            "advice",
            f"{len(short)} clips are shorter than {SHORTEST:g} s",
            "listen to them: a whole word is longer",
            short,
        )
    long = where(seconds > LONGEST)
    if long:
        yield Finding(
            "long",
            "advice",
            f"{len(long)} clips are longer than {LONGEST:g} s",
            f"training cuts clips to data.seconds (1 s): set --data.seconds {_keeping(seconds):g} to keep "
            "99 % of all clips whole, or cut them around the word",
            long,
        )
    rates = Counter(index["rate"].tolist())
    if rates and (len(rates) > 1 or 16000.0 not in rates):
        told = ", ".join(f"{n} at {rate:g} Hz" for rate, n in rates.most_common(4))
        ((rate, n),) = rates.most_common(1)
        most = (
            f"; with --data.rate {rate:g} a model trained from nothing has the rate of most clips"
            if n > len(clips) / 2 and rate != 16000.0
            else ""
        )
        yield Finding(
            "rates",
            "advice",
            f"sample rates: {told}",
            f"nothing to do: clips keep their own rate and train together{most}",
        )
    channels = where(index["channels"] > 1)
    if channels:
        yield Finding(
            "channels",
            "advice",
            f"{len(channels)} clips have several channels",
            "they are averaged to one; give the channel of the voice alone if the others are empty",
            channels,
        )


def _duplicates(clips: Sequence[Clip], index: np.ndarray) -> Iterable[Finding]:
    """Equal sound under several names: across words a label is wrong, across splits the test is not one."""
    heard = [i for i in range(len(clips)) if index["peak"][i] >= SILENT_PEAK]  # silence has its own finding
    alike = _grouped(heard, lambda i: (int(index["digest"][i]), int(index["length"][i])))
    groups = [[clips[i] for i in group] for group in alike.values() if len(group) > 1]
    kinds = {
        "two_words": (
            "problem",
            "are in folders of different words",
            "one of the labels is wrong: remove the copy",
            [g for g in groups if len({clip.word for clip in g}) > 1],
        ),
        "two_splits": (
            "problem",
            "are both trained on and tested with",
            "remove the copies; results look too good",
            [g for g in groups if len({clip.split for clip in g}) > 1],
        ),
        "duplicate": (
            "advice",
            "are in one folder more than once",
            "remove the copies; they count double",
            [g for g in groups if len({(clip.word, clip.split) for clip in g}) == 1],
        ),
    }
    for kind, (level, text, advice, found) in kinds.items():
        if found:
            yield Finding(
                kind,
                level,
                f"{len(found)} recordings {text}",
                advice,
                [" = ".join(shown(clip.id) for clip in group) for group in found],
            )


def _balance(words: dict[str, dict[str, Any]]) -> Iterable[Finding]:
    keywords = {word: row for word, row in words.items() if word not in (UNKNOWN, SILENCE)}
    few = [f"{word} ({row['clips']})" for word, row in keywords.items() if row["clips"] < FEW_CLIPS]
    if few:
        yield Finding(
            "few",
            "advice",
            f"words with fewer than {FEW_CLIPS} clips: {', '.join(few)}",
            "20 to 50 recordings a word by many people make a usable model; more is better",
        )
    counts = [row["clips"] for row in keywords.values()]
    if counts and max(counts) > IMBALANCE * min(counts):
        yield Finding(
            "imbalance",
            "advice",
            f"the largest word has {max(counts)} clips, the smallest {min(counts)}",
            "record more of the small ones, or leave them out with --data.words",
        )
    for split in SPLITS:
        empty = [word for word, row in keywords.items() if not row[split]]
        held_out = sum(row[split] for row in keywords.values())
        if split != "train" and 0 < held_out < FEW_HELD_OUT:
            yield Finding(
                f"few_{split}",
                "advice",
                f"only {held_out} clips are held out for {split}",
                "accuracies from so few say little; record more people, or write validation_list.txt and "
                "testing_list.txt",
            )
        if empty:
            level = "problem" if split == "train" or len(empty) == len(keywords) else "advice"
            yield Finding(
                "empty",
                level,
                f"no clips for {split}: {', '.join(empty)}",
                "record more, or write validation_list.txt and testing_list.txt",
            )


def _speakers(manifest: Manifest) -> Iterable[Finding]:
    speakers = {clip.speaker for clip in manifest.clips} - {""}
    if not speakers:
        yield Finding(
            "speakers",
            "advice",
            "the file names do not tell who speaks",
            "name clips <speaker>_nohash_<number> so that test speakers are never heard in training; "
            "results look too good otherwise",
        )
    elif len(speakers) < FEW_SPEAKERS:
        yield Finding(
            "speakers",
            "advice",
            f"{len(speakers)} speakers",
            "record more people if the model is to understand everybody, or let synthetic ones help: recipe spotter",
        )
    shared = shared_speakers(manifest.clips)
    if shared:
        yield Finding(
            "shared_speakers",
            "advice",
            f"{len(shared)} speakers are in more than one split",
            "put all clips of a speaker on one side; results look too good",
            [shown(name) for name in shared],
        )


def _folder(manifest: Manifest) -> Iterable[Finding]:
    if not manifest.noises and SILENCE not in manifest.words:
        yield Finding(
            "noise",
            "advice",
            "no recordings in _background_noise_",
            "add some minutes of the rooms where the model will listen: for _silence_ and as added noise",
        )


def _keeping(seconds: np.ndarray) -> float:
    """The limit, rounded up to 0.1 s and above the default of 1 s, that 99 % of the clips keep."""
    return max(1.1, math.ceil(10 * float(np.quantile(seconds, 0.99))) / 10)


def _counts(values: np.ndarray) -> dict[str, int]:
    return {f"{value:g}": n for value, n in sorted(Counter(values.tolist()).items())}


def _grouped(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
