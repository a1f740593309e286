"""Decoding spread over processes: each decodes a run of clips into its own shard and says how far it is.

Plain subprocesses of this interpreter, so that a user's script needs no ``if __name__ == "__main__"`` and a decoder
that crashes on a hostile file does not take the training process along.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kws_s5.data.keywords.decode import decode_all
from kws_s5.errors import UserError

CLIPS_PER_WORKER = 1500  # fewer are decoded faster here than a process starts


def decode_shards(paths: Sequence[str], folder: Path, *, done: Callable[[int], None],
                  n_workers: int | None = None) -> int:
    """Decodes ``paths`` into ``folder``/shard-0.*, shard-1.*, ...; returns the number of shards.

    Args:
        done: called from several threads with the number of clips decoded since its last call.
        n_workers: processes; None: by the number of clips and processors; 1: none, here.
    """
    n = n_workers or max(1, min(_processors(), len(paths) // CLIPS_PER_WORKER))
    if n == 1:
        decode_all(paths, folder / "shard-0", done=done)
        return 1
    bounds = [len(paths) * i // n for i in range(n + 1)]
    processes: list[subprocess.Popen] = []
    try:
        for i in range(n):
            (folder / f"shard-{i}.paths").write_text(json.dumps(paths[bounds[i]: bounds[i + 1]]), encoding="utf-8")
            processes.append(_start(folder / f"shard-{i}", i))
        with ThreadPoolExecutor(n) as threads:
            list(threads.map(lambda process: _follow(process, done), processes))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    for i in range(n):
        (folder / f"shard-{i}.paths").unlink()
    return n


def _start(prefix: Path, shard: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "kws_s5.data.keywords.decode", f"{prefix}.paths", str(prefix), str(shard)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, errors="replace", env=environment)


def _follow(process: subprocess.Popen, done: Callable[[int], None]) -> None:
    """Passes on a worker's progress to its end; its failure becomes an error here."""
    with ThreadPoolExecutor(1) as thread:
        stderr = thread.submit(process.stderr.read)  # read beside stdout, so that neither pipe fills up
        for line in process.stdout:
            done(int(line))
        said = stderr.result().strip().splitlines()
    if process.wait() == 0:
        return
    last = said[-1] if said else f"exit status {process.returncode}"
    raise UserError(f"decoding stopped ({last}); free some disk space, or find the file that does it with kws-data")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
