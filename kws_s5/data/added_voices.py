"""Synthetic speakers beside a few real ones: a folder's words, also said by a speech synthesiser, in training only.

Two people who record ten words teach a model their voices; forty more voices, even synthetic ones, teach it the words
(figures: docs/experiments.md). Validation and test stay what was recorded. Needs the extra ``synth``.
"""

from collections.abc import Sequence

from kws_s5.config import KeywordData
from kws_s5.data.classes import choose
from kws_s5.data.clips import Clips, Item
from kws_s5.data.manifest import SILENCE, UNKNOWN, scan
from kws_s5.data.store import open_store


def added_clips(config: KeywordData, names: Sequence[str], others: Sequence[str]) -> Clips:
    """Training clips in which ``config.added_voices`` synthetic speakers say every word ``synthetic_takes`` times.

    Args:
        names: the classes in their order; words are read as they are written.
        others: the folder's other words, of which ``unknown_share`` stand for ``_unknown_`` if that is a class;
            without any, words of our own do.

    Raises:
        UserError: the synthesiser is missing, or cannot say one of the words.
    """
    from kws_s5.data.espeak import ACCENTS
    from kws_s5.data.synthetic import FILLERS, synthesise_in_cache
    words = [name for name in names if name not in (UNKNOWN, SILENCE)]
    unknown = []
    if UNKNOWN in names:
        spare = [word for word in others or FILLERS if word not in (*words, UNKNOWN, SILENCE)]
        n = len(spare) if config.unknown_share >= 1 else round(config.unknown_share * len(words))
        unknown = choose(spare, max(1, n), config.seed)
    root = synthesise_in_cache(config.cache, words=(*words, *unknown), n_voices=config.added_voices,
                               n_takes=config.synthetic_takes, seed=config.seed, rate=round(config.rate),
                               seconds=min(config.seconds or 1.0, 60.0), accents=config.accents or ACCENTS)
    clips = scan(root).clips  # of all its splits: nobody is tested on these
    store = open_store(root, clips, cache=config.cache)
    target = {name: i for i, name in enumerate(names)}
    items = [Item(f"synthetic: {clip.id}", row, 0, int(store.index["length"][row]), 1.0,
                  target.get(clip.word, target.get(UNKNOWN, 0)))
             for clip in clips for row in [store.rows[clip.id]]]
    return Clips(store, items, seconds=config.seconds, pad=config.pad, random_windows=True, seed=config.seed)
