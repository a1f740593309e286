"""What a model is tested on: the clips of its run, somebody's folder of recordings, or the official 12-class archive.

own run         the test split that training left alone, made again from the config inside the model
lists           a folder with testing_list.txt: its test split, dealt into the model's classes as in training
plain folder    root/<word>/<clip>, every clip; words that the model does not know are _unknown_ where it has that
                class, else they are left out and counted
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import ConcatDataset, Dataset

from kws_s5.audio.samples import shown
from kws_s5.bundle import Bundle
from kws_s5.config import Data, KeywordData
from kws_s5.data.build import build
from kws_s5.data.keywords.clips import Clips
from kws_s5.data.keywords.manifest import SILENCE, UNKNOWN
from kws_s5.data.keywords.reader import evaluation_set
from kws_s5.data.keywords.speech_commands import is_test_archive
from kws_s5.data.keywords.split_rule import read_lists
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

Split = Literal["train", "validation", "test", "all"]


@dataclass(frozen=True)
class Source:
    """Clips (or other examples), what they are, and what was left out."""

    dataset: Dataset
    description: str
    own_rates: tuple[float, ...] = ()  # Hz, that occur among the clips; () for data without a rate
    remarks: tuple[str, ...] = ()

    @property
    def ids(self) -> list[str]:
        """A name for every example: its file where there is one, else its number."""
        parts = self.dataset.datasets if isinstance(self.dataset, ConcatDataset) else [self.dataset]
        named = [id for part in parts for id in getattr(part, "ids", ())]
        n = len(self.dataset)
        return [shown(id) for id in named] if len(named) == n else [str(i) for i in range(n)]


def from_run(bundle: Bundle, *, split: Split = "test") -> Source:
    """The clips of the run that made the model. Raises UserError where they are not there any more."""
    config = _without_background(bundle.config.data)
    try:
        splits = build(config)
    except UserError as error:
        way_out = "; name recordings with --data DIR" if isinstance(config, KeywordData) else ""
        raise UserError(f"the data of the model's own run: {error}{way_out}") from None
    root = getattr(config, "root", "")
    return _of_splits(bundle, splits, split, folder_name(root) if root else shown(bundle.config.name))


def from_folder(bundle: Bundle, folder: str | Path, *, split: Split | None = None) -> Source:
    """A folder of recordings. ``split``: None: the test split where the folder has lists, else every clip.

    Raises:
        UserError: no recordings, or none of a word that the model knows.
    """
    folder, config = Path(folder).expanduser(), bundle.config.data
    if not isinstance(config, KeywordData):
        raise UserError("--data is for models of sound; this one is evaluated on its own data, without --data")
    listed = folder.is_dir() and bool(read_lists(folder))
    config = replace(_without_background(config), root=str(folder), download="", on_bad_file="skip")
    if split != "all" and (listed or split is not None):
        words = tuple(label for label in bundle.labels if label not in (UNKNOWN, SILENCE))
        same = replace(config, words=words, unknown=UNKNOWN in bundle.labels, silence=SILENCE in bundle.labels)
        return _of_splits(bundle, build(same), split or "test", folder_name(folder))
    clips, report = evaluation_set(config, bundle.labels)
    archive = " (official 12-class test archive)" if is_test_archive(folder) else ""
    remarks = _remarks(report, as_unknown=_as_unknown(clips, bundle.labels))
    return Source(clips, f"all clips of {folder_name(folder)}{archive}", _rates(clips), remarks)


def _without_background(config: Data) -> Data:
    """Hours that only the training listens to, and that may be elsewhere by now."""
    return replace(config, background="") if isinstance(config, KeywordData) else config


def folder_name(folder: str | Path) -> str:
    """The last part of a path, for reports and model files: where it lies on somebody's disk is nobody's business."""
    return shown(Path(folder).expanduser().resolve().name)


def _of_splits(bundle: Bundle, splits: Splits, split: Split, name: str) -> Source:
    if splits.labels and tuple(splits.labels) != tuple(bundle.labels):
        odd = sorted(set(splits.labels) ^ set(bundle.labels))
        raise UserError(
            f"{name}: its classes are not the model's (differing: {', '.join(odd[:3]) or 'their order'}); "
            "use the folder as it was in training, or name another one with --data DIR"
        )
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    chosen = list(parts.values()) if split == "all" else [parts[split]]
    rates = tuple(sorted({rate for part in chosen for rate in _rates(part)})) if bundle.rate else ()
    dataset = ConcatDataset(chosen) if len(chosen) > 1 else chosen[0]
    if not len(dataset):
        raise UserError(f"{name}: the {split} split is empty; choose another one with --split")
    return Source(
        dataset,
        f"the {split} split of {name}" if split != "all" else f"all splits of {name}",
        rates,
        _remarks(splits.report),
    )


def _rates(dataset: Dataset) -> tuple[float, ...]:
    known = getattr(dataset, "rates", None)
    return tuple(sorted(set(known.tolist() if known is not None else (dataset[i].rate for i in range(len(dataset))))))


def _as_unknown(clips: Clips, labels: Sequence[str]) -> Counter[str]:
    """Folders whose clips count as _unknown_ because the model has no such word."""
    words = [shown(id.split("/")[0]) for id in clips.ids]
    return Counter(
        word for word, target in zip(words, clips.targets, strict=True) if labels[target] == UNKNOWN and word != UNKNOWN
    )


def _remarks(report: Mapping[str, Any], *, as_unknown: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """Lines for people on what a reader of recordings reports."""
    lines = []
    for what, words in (
        (f"counted as {UNKNOWN}", as_unknown),
        ("left out, no words of the model", report.get("left_out")),
    ):
        if words:
            names = [f"{word} ({n})" for word, n in sorted(words.items(), key=lambda item: (-item[1], item[0]))]
            lines.append(f"{what}: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}")
    if report.get("unreadable"):
        lines.append(f"left out, unreadable: {len(report['unreadable'])} files")
    return (*lines, *report.get("notes", ()))
