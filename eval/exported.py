"""What an export costs in accuracy: torch and every kind of stored weights, on the same clips at their own rates.

    python -m kws_s5.eval.exported commands12 --data FOLDER          a table: bytes, accuracy, changed decisions

FOLDER as for kws-eval. Exit status 1 where a kind with at least 6 bits loses more than half a point.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
import tyro
from torch.utils.data import Dataset

from kws_s5.bundle import Bundle, load
from kws_s5.cli import guarded
from kws_s5.data.batch import Batch, collate
from kws_s5.eval.sources import from_folder
from kws_s5.export.description import Kind
from kws_s5.export.export import export
from kws_s5.listening.onnx_engine import opened

BATCH = 64
MOST_LOST = 0.5  # points
GOOD = ("float32", "int8", "int7", "int6")


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: tyro.conf.Positional[str]
    """A run folder, a model file, or the name of a shipped model."""
    data: Path = tyro.MISSING
    """Recordings: the test split of a folder with lists, else every clip."""


def main(argv: Sequence[str] | None = None) -> int:
    """The table. Exit status 0 good, 1 too much lost, 2 a mistake."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m kws_s5.eval.exported", description=__doc__)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> int:
    bundle = load(arguments.model)
    source = from_folder(bundle, arguments.data)
    truth, expected = _of_torch(bundle, source.dataset)
    before = 100 * (expected == truth).mean()
    print(f"{len(truth)} clips of {source.description}\n\nstored     step file   clip file  accuracy %  changed")
    print(f"{'torch':<9} {'':>10}  {'':>10}  {before:>10.2f}")
    lost = {}
    with TemporaryDirectory() as folder:
        for kind in get_args(Kind):
            sizes, predicted = _of_graph(bundle, source.dataset, kind, folder)
            after = 100 * (predicted == truth).mean()
            lost[kind] = before - after
            changed = int((predicted != expected).sum())
            print(f"{kind:<9} {sizes['step']:>10,}  {sizes['clip']:>10,}  {after:>10.2f}  {changed:>7}", flush=True)
    return int(max(lost[kind] for kind in GOOD) > MOST_LOST)


def _batches(dataset: Dataset) -> Iterator[Batch]:
    """Clips in order, each batch of one rate."""
    waiting: list = []
    for i in range(len(dataset)):
        example = dataset[i]
        if waiting and (len(waiting) == BATCH or waiting[0].rate != example.rate):
            yield collate(waiting)
            waiting = []
        waiting.append(example)
    yield collate(waiting)


def _of_torch(bundle: Bundle, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Truth and decisions (n,)."""
    predicted = [(batch.y.numpy(), bundle.logits(batch).argmax(-1).cpu().numpy()) for batch in _batches(dataset)]
    truth, decided = map(np.concatenate, zip(*predicted, strict=True))
    return truth, decided


def _of_graph(bundle: Bundle, dataset: Dataset, kind: Kind, folder: str) -> tuple[dict[str, int], np.ndarray]:
    """Bytes of the files by kind, decisions (n,)."""
    files = {file.kind: file for file in export(bundle, kind, folder, weights=kind)}
    session, decided = opened(files["clip"].path), []
    for batch in _batches(dataset):
        inputs = {
            "sound": batch.x[..., 0].numpy(),
            "lengths": batch.lengths.numpy(),
            "rate": np.array(float(batch.rates[0])),
        }
        decided.append(session.run(["logits"], inputs)[0].argmax(-1))
    sizes = {name: files[name].size if name in files else 0 for name in ("step", "clip")}
    return sizes, np.concatenate(decided)


if __name__ == "__main__":
    raise SystemExit(main())
