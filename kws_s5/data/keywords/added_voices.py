"""Synthetic speakers beside real ones, in training only: they say a folder's words, or nearly, or talk without them.

Two people who record ten words teach a model their voices; forty more voices, even synthetic ones, teach it the words.
And a model that has heard words one at a time takes pieces of running speech for words until it has heard people talk.
Noises stand for ``_silence_`` where nobody has recorded the room. Validation and test stay what was recorded (figures:
docs/experiments.md). Voices need the extra ``synth``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from kws_s5.audio.samples import shown
from kws_s5.config import KeywordData
from kws_s5.data.keywords.classes import choose
from kws_s5.data.keywords.clips import Clips, Item
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN, scan
from kws_s5.data.keywords.store import open_store
from kws_s5.data.synthetic.noise import noise_in_cache
from kws_s5.errors import UserError


def added_clips(config: KeywordData, names: Sequence[str], others: Sequence[str], *, noise: bool) -> list[Clips]:
    """What data.added_voices, added_talk and added_near_misses ask for, as sets of training clips.

    Args:
        names: the classes in their order; words are read as they are written.
        noise: also noises for ``_silence_``, of which there is no recording.
        others: the folder's other words, of which ``unknown_share`` stand for ``_unknown_`` if that is a class;
            without any, words of our own do.

    Raises:
        UserError: the synthesiser is missing, or cannot say one of the words, or has not so many voices.
    """
    keywords = [name for name in names if name not in (UNKNOWN, SILENCE)]
    roots = []
    if config.added_voices:
        roots.append(_words(config, keywords, others if UNKNOWN in names else None))
    if config.added_talk:
        roots.append(talk_folder(config, keywords))
    if config.added_near_misses:
        roots.append(_near_misses(config, keywords))
    if noise:
        roots.append(noise_in_cache(seed=config.seed, rate=round(config.rate), cache=config.cache))
    return [_clips(config, root, names) for root in roots]


def _words(config: KeywordData, keywords: Sequence[str], others: Sequence[str] | None) -> Path:
    from kws_s5.data.synthetic.espeak import ACCENTS, pronounce
    from kws_s5.data.synthetic.words import FILLERS, synthesise_in_cache

    accent = (config.accents or ACCENTS)[0]
    sounds = pronounce(keywords, accent)
    _check_said(keywords, sounds, accent)
    unknown = []
    if others is not None:
        spare = [word for word in others if word not in (UNKNOWN, SILENCE)] or list(FILLERS)
        spare = [word for word, sound in zip(spare, pronounce(spare, accent), strict=True) if sound not in sounds]
        n = len(spare) if config.unknown_share >= 1 else round(config.unknown_share * len(keywords))
        unknown = choose(spare, max(1, n), config.seed)
    return synthesise_in_cache(
        config.cache,
        words=(*keywords, *unknown),
        n_voices=config.added_voices,
        n_takes=config.synthetic_takes,
        seed=config.seed,
        rate=round(config.rate),
        seconds=min(config.seconds or 1.0, 60.0),
        accents=config.accents or ACCENTS,
    )


def _check_said(keywords: Sequence[str], sounds: Sequence[str], accent: str) -> None:
    """Words that the synthesiser cannot read would be taught as something else."""
    strange = [word for word in keywords if accent.startswith("en") and not re.search("[A-Za-z0-9]", word)]
    if strange:
        raise UserError(
            f"data.added_voices: {shown(strange[0])!r} cannot be read in English; name its language with "
            "data.accents, or set data.added_voices 0"
        )
    for word, sound in zip(keywords, sounds, strict=True):
        first = keywords[sounds.index(sound)]
        if first != word:
            raise UserError(
                f"data.added_voices: {shown(first)!r} and {shown(word)!r} sound the same in {accent}; name "
                "another language with data.accents, or set data.added_voices 0"
            )


def talk_folder(config: KeywordData, keywords: Sequence[str]) -> Path:
    """Where the people of data.added_talk talk, made if need be."""
    from kws_s5.data.synthetic.espeak import ACCENTS
    from kws_s5.data.synthetic.talk import talk_in_cache

    return talk_in_cache(
        keywords,
        n_voices=config.added_talk,
        seed=config.seed,
        rate=round(config.rate),
        accents=config.accents or ACCENTS,
        cache=config.cache,
    )


def _near_misses(config: KeywordData, keywords: Sequence[str]) -> Path:
    from kws_s5.data.synthetic.espeak import ACCENTS
    from kws_s5.data.synthetic.near_misses import near_misses_in_cache

    return near_misses_in_cache(
        keywords,
        n_voices=config.added_near_misses,
        seed=config.seed,
        rate=round(config.rate),
        accents=config.accents or ACCENTS,
        cache=config.cache,
    )


def _clips(config: KeywordData, root: Path, names: Sequence[str]) -> Clips:
    """All of a synthetic folder, whatever split it is in: nobody is tested on these."""
    clips = scan(root).clips
    store = open_store(root, clips, cache=config.cache)
    target = {name: i for i, name in enumerate(names)}
    items = []
    for clip in clips:
        row = store.rows[clip.id]
        if not store.readable(clip.id):
            raise UserError(f"{root}: is damaged; remove this folder, it will be made again")
        label = clip.word if clip.word in target else UNKNOWN
        items.append(Item(f"synthetic: {clip.id}", row, 0, int(store.index["length"][row]), 1.0, target[label]))
    return Clips(store, items, seconds=config.seconds, pad=config.pad, random_windows=True, seed=config.seed)
