"""What the classes of a keyword model are: the words, ``_unknown_`` (other words) and ``_silence_`` (no word).

Every choice is made by the order of sha1(seed, name), not by a generator: it does not depend on the version of a
library, and a folder that grows keeps nearly all of its choices.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from kws_s5.audio.samples import shown
from kws_s5.config import KeywordData
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN, Clip, Manifest
from kws_s5.errors import UserError

# Shares of the time of every noise recording: what is heard in training is not heard in validation and test.
NOISE_SPANS = {"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)}
DRAWN_AS = {"train": "training", "validation": "validation", "test": "testing"}  # old names: the draws stay as they are


@dataclass(frozen=True)
class Cut:
    """A piece of a noise recording that stands for silence, in samples; ``noise`` "" is digital silence."""

    noise: str  # id
    start: int
    stop: int
    gain: float

    @property
    def name(self) -> str:
        return f"{SILENCE}: {self.noise or 'digital silence'} [{self.start}:{self.stop}] x {self.gain:.3f}"


def labels(config: KeywordData, words: Sequence[str], official: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the classes in order: words as configured (else ``official`` where equal, else sorted), then the rest.

    Raises:
        UserError: a word without a folder, or fewer than two classes.
    """
    plain = [word for word in words if word not in (UNKNOWN, SILENCE)]
    missing = [word for word in config.words if word not in plain]
    if missing:
        raise UserError(
            f"data.words: no folder {shown(missing[0])!r} in {shown(config.root)}; there are: "
            + shown(", ".join(plain[:40]))
        )
    keywords = config.words or (tuple(official) if set(official) == set(plain) else tuple(sorted(plain)))
    if config.unknown and not (
        set(words) - set(keywords) - {SILENCE} or config.added_voices or config.added_talk or config.added_near_misses
    ):
        raise UserError(
            f"data.unknown: {shown(config.root)} has no other words; name the keywords with data.words, "
            f"put other words into a folder {UNKNOWN}, or let synthetic voices talk: data.added_talk"
        )
    found = (*keywords, *[UNKNOWN] * config.unknown, *[SILENCE] * config.silence)
    if len(found) < 2:
        raise UserError(
            f"{shown(config.root)}: one class is nothing to choose from; add words, or switch on "
            "data.unknown or data.silence"
        )
    return found


def choose(names: Sequence[str], n: int, seed: int) -> list[str]:
    """``n`` of ``names``, the same ones whenever and wherever it is asked."""
    return sorted(sorted(names, key=lambda name: (_unit(f"{seed} {name}"), name))[:n])


def unknown_ids(config: KeywordData, manifest: Manifest, split: str) -> list[str]:
    """Clips of one split for the class _unknown_: all of the folder _unknown_, and a share of the other words."""
    keywords = config.words or [word for word in manifest.words if word not in (UNKNOWN, SILENCE)]
    clips = [clip for clip in manifest.clips if clip.split == split]
    n_keywords = sum(clip.word in keywords for clip in clips)
    others = [clip.id for clip in clips if clip.word not in (*keywords, UNKNOWN, SILENCE)]
    share = config.unknown_share
    n = len(others) if share >= 1 else max(int(share > 0), round(share * n_keywords))
    return sorted([clip.id for clip in clips if clip.word == UNKNOWN] + choose(others, n, config.seed))


def silence_cuts(
    n: int, noises: Sequence[tuple[str, int, float]], *, split: str, seconds: float, rate: float, seed: int
) -> list[Cut]:
    """``n`` pieces of ``seconds`` for the class _silence_, from this split's part of the noise recordings.

    Args:
        noises: (id, length in samples, Hz) of each recording; none: digital silence at ``rate`` Hz.
    """
    if not noises:
        return [Cut("", 0, round(seconds * rate), 0.0)] * n
    cuts = []
    for i in range(n):
        id, length, noise_rate = noises[i % len(noises)]
        first, last = (round(length * share) for share in NOISE_SPANS[split])
        longest = min(round(seconds * noise_rate), last - first)
        draw = f"{seed} {DRAWN_AS[split]} {i}"
        start = first + int(_unit(f"{draw} start") * (last - first - longest + 1))
        cuts.append(Cut(id, start, start + longest, _unit(f"{draw} gain")))
    return cuts


def keyword_clips(clips: Sequence[Clip], words: Sequence[str], split: str) -> list[Clip]:
    """The clips of one split whose folder is one of ``words``."""
    wanted = set(words)
    return [clip for clip in clips if clip.split == split and clip.word in wanted]


def _unit(text: str) -> float:
    """A number in [0, 1) that depends on ``text`` alone."""
    return int.from_bytes(hashlib.sha1(text.encode("utf-8", "surrogateescape")).digest()[:6]) / 2**48
