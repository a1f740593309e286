"""Pieces of an evaluation in several processes, results in the order of the pieces.

Every process has its own copy of the model and opens the store of clips itself; cores are divided between them.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from kws_s5.bundle import Bundle

if TYPE_CHECKING:
    from kws_s5.eval.evaluate import Piece, Said

_worker: dict[str, Any] = {}  # of this process


def in_processes(bundle: Bundle, dataset: Dataset, pieces: Sequence["Piece"], n: int) -> Iterator["Said"]:
    """What the model says about each piece; n processes."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, (os.cpu_count() or 1) // n)
    with ProcessPoolExecutor(n, context, _begin, (bundle, dataset, threads)) as pool:
        jobs = [pool.submit(_work, piece) for piece in pieces]
        try:
            for job in jobs:
                yield job.result()
        except BaseException:  # Ctrl-C, or a piece that failed: those that have not begun never will
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(bundle: Bundle, dataset: Dataset, threads: int) -> None:
    torch.set_num_threads(threads)
    _worker.update(bundle=bundle, dataset=dataset)


def _work(piece: "Piece") -> "Said":
    from kws_s5.eval.evaluate import listen

    return listen(_worker["bundle"], _worker["dataset"], piece)
