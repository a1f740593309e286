"""A folder of words -> training, validation and test set of a keyword model.

    splits = build(KeywordData(root="my_words"))        evaluation_set(KeywordData(root="other"), labels) -> one set

Clips keep their own rate, level and (up to data.seconds) length. What was chosen is written down: Splits.report, and as
JSON beside the decoded clips.
"""

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kws_s5.atomic import write_text
from kws_s5.audio.samples import shown
from kws_s5.config import KeywordData
from kws_s5.data.cache import cache_folder
from kws_s5.data.keywords.added_voices import added_clips
from kws_s5.data.keywords.classes import NOISE_SPANS, Cut, keyword_clips, labels, silence_cuts, unknown_ids
from kws_s5.data.keywords.clips import SILENT, Clips, Item
from kws_s5.data.keywords.joined import AnyClips, JoinedClips
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN, Clip, Manifest, scan
from kws_s5.data.keywords.report import words_lost
from kws_s5.data.keywords.split_rule import SPLITS
from kws_s5.data.keywords.store import Store, open_store
from kws_s5.data.keywords.stream_material import with_background
from kws_s5.data.keywords.word_place import around_word
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

NOISE_MINUTES = 20.0  # of noise recordings held in memory for augmentation


def build(config: KeywordData) -> Splits:
    """The sets of ``config.root``: fetched or synthesised, listed, decoded once, and opened.

    Raises:
        UserError: see manifest.scan and classes.labels; unreadable clips with on_bad_file "fail"; a class or a split
            without clips.
    """
    manifest = scan(folder(config), validation_percent=config.validation_percent, test_percent=config.test_percent)
    names = labels(config, manifest.words, _official_words())
    store, missing = _store(config, manifest)
    choice = {split: _chosen(config, manifest, names, store, split) for split in SPLITS}
    sets: dict[str, AnyClips] = {
        split: Clips(
            store,
            _items(store, choice[split], names, config),
            seconds=config.seconds,
            pad=config.pad,
            random_windows=split == "train",
            seed=config.seed,
            silent_rate=config.rate,
        )
        for split in SPLITS
    }
    added = added_clips(
        config, names, [word for word in manifest.words if word not in names], noise=_no_silence(config, manifest)
    )
    if added:
        choice["train"] += [(item.id, names[item.target]) for clips in added for item in clips.items]
        sets["train"] = JoinedClips([sets["train"], *added])
    _check(config, sets, names)
    segments, noises, told = None, _noises(store, manifest.noises), []
    if config.background:
        segments, more, line = with_background(config, names, sets["train"])
        noises, told = [*noises, *more], [line]
    report = _report(config, manifest, sets, names, missing)
    report["notes"] += told
    report["choices"] = str(_write_choices(config, names, choice))
    return Splits(
        sets["train"],
        sets["validation"],
        sets["test"],
        labels=names,
        n_outputs=len(names),
        report=report,
        note=_note(manifest, sets["train"]),
        segments=segments,
        noises=noises,
    )


def evaluation_set(config: KeywordData, names: Sequence[str]) -> tuple[Clips, dict[str, Any]]:
    """All clips of ``config.root`` as one set for a model with classes ``names``, whatever split they are in; a report.

    Folders that are no class count as _unknown_ if the model has that class, else they are left out. This reads the
    official 12-class test archive of Speech Commands, and any recordings in word folders.
    """
    manifest = scan(folder(config), validation_percent=0, test_percent=0)  # nothing is dealt out here
    store, missing = _store(config, manifest)
    rest = UNKNOWN if UNKNOWN in names else None
    chosen = [(clip.id, clip.word if clip.word in names else rest) for clip in manifest.clips]
    items = _items(store, [(id, label) for id, label in chosen if label], names, config)
    if not items:
        raise UserError(f"{shown(config.root)}: no folder is named like a class of the model ({', '.join(names)})")
    clips = Clips(store, items, seconds=config.seconds, pad=config.pad, silent_rate=config.rate)
    left_out = Counter(shown(id.split("/")[0]) for id, label in chosen if not label)
    return clips, {
        "folder": shown(manifest.root.name),
        "clips": _per_class(clips, names),
        "unreadable": missing,
        "left_out": dict(left_out),
        "notes": list(manifest.notes),
    }


def folder(config: KeywordData) -> Path:
    """The folder of recordings: ``config.root``, downloaded or synthesised first where the config says so."""
    if config.root == "synthetic":
        from kws_s5.data.synthetic.espeak import ACCENTS
        from kws_s5.data.synthetic.words import DEFAULT_WORDS, FILLERS, synthesise_in_cache

        words = (*config.words, *[word for word in FILLERS if config.unknown and word not in config.words])
        return synthesise_in_cache(
            config.cache,
            words=words if config.words else DEFAULT_WORDS,
            n_voices=config.synthetic_voices,
            n_takes=config.synthetic_takes,
            seed=config.seed,
            rate=round(config.rate),
            accents=config.accents or ACCENTS,
            validation_percent=config.validation_percent,
            testing_percent=config.test_percent,
        )
    if config.download:
        from kws_s5.data.keywords.speech_commands import fetch

        return fetch(Path(config.root).expanduser(), config.download)
    return Path(config.root).expanduser()


def _official_words() -> tuple[str, ...]:
    from kws_s5.data.keywords.speech_commands import WORDS_35

    return WORDS_35


def _store(config: KeywordData, manifest: Manifest) -> tuple[Store, dict[str, str]]:
    """The decoded folder and what could not be read, which is told (skip) or an error (fail)."""
    clips = (*manifest.clips, *manifest.noises)  # always all of them: one store serves every choice of words
    store = open_store(manifest.root, clips, cache=config.cache)
    missing = {shown(id): reason for id, reason in store.failures.items()}
    if missing:
        first = next(iter(missing.values()))
        if config.on_bad_file == "fail":
            raise UserError(f"{len(missing)} of {len(clips)} clips cannot be read (data.on_bad_file is fail): {first}")
        print(
            f"warning: {len(missing)} of {len(clips)} clips skipped, they cannot be read, for instance: {first}; "
            f"`kws-data {shown(manifest.root)}` lists them",
            file=sys.stderr,
        )
    lost = words_lost(manifest, store)
    if lost:
        print(
            f"warning: folders without a recording that can be read: {', '.join(lost)}; the model will not know them",
            file=sys.stderr,
        )
    return store, missing


def _chosen(
    config: KeywordData, manifest: Manifest, names: Sequence[str], store: Store, split: str
) -> list[tuple[str | Cut, str]]:
    """(clip id or cut of noise, label) of everything in one split."""
    words = [name for name in names if name not in (UNKNOWN, SILENCE)]
    chosen: list[tuple[str | Cut, str]] = [(clip.id, clip.word) for clip in keyword_clips(manifest.clips, words, split)]
    n_keywords = len(chosen)
    if config.unknown:
        chosen += [(id, UNKNOWN) for id in unknown_ids(config, manifest, split)]
    if config.silence and n_keywords:
        recorded = [(clip.id, SILENCE) for clip in manifest.clips if clip.word == SILENCE and clip.split == split]
        readable = [(clip.id, store.index[store.rows[clip.id]]) for clip in manifest.noises if store.readable(clip.id)]
        noises = [(id, int(row["length"]), float(row["rate"])) for id, row in readable]
        n = 0 if SILENCE in manifest.words else max(1, round(config.silence_share * n_keywords))
        cuts = silence_cuts(n, noises, split=split, seconds=config.seconds or 1.0, rate=config.rate, seed=config.seed)
        chosen += recorded + [(cut, SILENCE) for cut in cuts]
    return chosen


def _items(
    store: Store, chosen: Sequence[tuple[str | Cut, str]], names: Sequence[str], config: KeywordData
) -> list[Item]:
    """What can be read of ``chosen``, as items of a data set."""
    target = {name: i for i, name in enumerate(names)}
    lengths = store.index["length"].tolist()
    items = []
    for source, label in chosen:
        if isinstance(source, Cut):
            row = store.rows[source.noise] if source.noise else SILENT
            items.append(Item(source.name, row, source.start, source.stop, source.gain, target[label]))
        elif store.readable(source):
            row = store.rows[source]
            start, stop = 0, lengths[row]
            rate = float(store.index["rate"][row])
            if config.trim and label not in (UNKNOWN, SILENCE) and stop > config.seconds * rate > 0:
                start, stop = around_word(store.waveform(row), rate, config.seconds)
            items.append(Item(source, row, start, stop, 1.0, target[label]))
    return items


def _check(config: KeywordData, sets: dict[str, AnyClips], names: Sequence[str]) -> None:
    """Every class is trained, and every split that was asked for has clips."""
    for name, n in _per_class(sets["train"], names).items():
        if not n:
            held_out = sum(_per_class(sets[split], names)[name] for split in ("validation", "test"))
            why = f"all {held_out} are in the validation and test split" if held_out else "there is none"
            raise UserError(
                f"{shown(config.root)}: no clip of {shown(name)!r} for training ({why}); add recordings, "
                "name the clips of the splits in validation_list.txt and testing_list.txt, or leave the "
                "word out of data.words"
            )
    for split, share in (("validation", config.validation_percent), ("test", config.test_percent)):
        if share > 0 and not len(sets[split]):
            raise UserError(
                f"{shown(config.root)}: no clips for {split}; add recordings (three or more a word), or "
                f"set data.{split}_percent to 0"
            )


def _per_class(clips: AnyClips, names: Sequence[str]) -> dict[str, int]:
    counts = Counter(clips.targets.tolist())
    return {name: counts[i] for i, name in enumerate(names)}


def _report(
    config: KeywordData, manifest: Manifest, sets: dict[str, AnyClips], names: Sequence[str], missing: dict[str, str]
) -> dict[str, Any]:
    notes = list(manifest.notes)
    if _no_silence(config, manifest):
        notes.append(
            f"{SILENCE} is digital silence, in training made-up noise too: no recordings in _background_noise_"
        )
    left_out = sorted(set(manifest.words) - set(names))
    if left_out and not config.unknown:
        notes.append(f"left out (data.unknown is off): {', '.join(left_out)}")
    if not config.unknown:
        notes.append(
            "no class _unknown_: a spotter takes whatever it hears for one of its words without it "
            "(recipe spotter, or --data.unknown)"
        )
    if isinstance(sets["train"], JoinedClips):
        notes.append(f"{_n_synthetic(sets['train'])} of the training clips are synthetic")
    rates = Counter(rate for clips in sets.values() for rate in clips.rates.tolist())
    return {
        "folder": shown(manifest.root.name),
        "split_rule": manifest.rule,
        "unreadable": missing,
        "notes": notes,
        "clips": {split: _per_class(clips, names) for split, clips in sets.items()},
        "rates": {f"{rate:g}": n for rate, n in sorted(rates.items())},
    }


def _write_choices(config: KeywordData, names: Sequence[str], choice: dict[str, list]) -> Path:
    """Writes down which clips and cuts stand for which class, word by word of every split."""
    record: dict[str, Any] = {"labels": list(names), "seed": config.seed}
    for split, chosen in choice.items():
        record[split] = {name: [] for name in names}
        for source, label in chosen:
            record[split][label].append(source.name if isinstance(source, Cut) else source)
    text = json.dumps(record, indent=1)  # ASCII: ids may be no valid Unicode
    key = hashlib.sha256((os.path.abspath(config.root) + text).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = cache_folder(config.cache) / "choices" / f"{key}.json"
    if not path.exists():
        write_text(path, text + "\n")
    return path


def _note(manifest: Manifest, train: AnyClips) -> str:
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(train.rates.tolist())))
    spoken = f" ({_n_synthetic(train)} of them synthetic)" if isinstance(train, JoinedClips) else ""
    name = shown(manifest.root.name)
    return f"trained on {len(train)} clips of {name}{spoken} at {rates} Hz, splits by {manifest.rule}"


def _no_silence(config: KeywordData, manifest: Manifest) -> bool:
    """Whether the class _silence_ is wanted and nothing was recorded for it."""
    return config.silence and not manifest.noises and SILENCE not in manifest.words


def _n_synthetic(train: JoinedClips) -> int:
    return sum(len(part) for part in train.datasets[1:])


def _noises(store: Store, noises: Sequence[Clip]) -> list[tuple[Tensor, float]]:
    """The training part of each noise recording, (L,) float32 with its rate; very long ones are cut."""
    readable = [store.rows[clip.id] for clip in noises if store.readable(clip.id)]
    first, last = NOISE_SPANS["train"]
    found = []
    for row in readable:
        rate, length = float(store.index["rate"][row]), int(store.index["length"][row])
        longest = int(NOISE_MINUTES * 60 * rate / len(readable))
        start, stop = round(first * length), round(last * length)
        samples, scale = store.piece(row, start, min(stop, start + longest))
        if len(samples):
            found.append((torch.from_numpy(samples.astype("float32") * scale), rate))
    return found
