"""The same function over many jobs in several processes, results in the order of the jobs.

    for arrays in mapped("kws_s5.data.lra.listops_generator:chunk", [{"seed": 0, "index": 0}, ...]): ...

Plain subprocesses of this interpreter, so that a user's script needs no ``if __name__ == "__main__"``. A job is JSON, a
result a mapping of numpy arrays; between processes both travel as bytes with their length in front (npz, no pickle).
A UserError of the function is raised here too.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from queue import SimpleQueue
from typing import BinaryIO

import numpy as np

from kws_s5.errors import UserError

Arrays = Mapping[str, np.ndarray]
MISTAKE = "user error"  # name of the array that carries the message of one


def mapped(function: str, jobs: Sequence[dict], *, n_workers: int | None = None) -> Iterator[Arrays]:
    """``module:function(**job)`` of every job.

    Args:
        n_workers: processes; None: one a processor, and none for fewer than four jobs; 1: none, here.
    """
    n = n_workers or (min(_processors(), len(jobs)) if len(jobs) >= 4 else 1)
    if n == 1:
        run = _resolved(function)
        yield from (run(**job) for job in jobs)
        return
    idle: SimpleQueue[subprocess.Popen] = SimpleQueue()
    processes = [_start(function) for _ in range(n)]
    for process in processes:
        idle.put(process)

    def run_one(job: dict) -> Arrays:
        process = idle.get()
        try:
            _send(process.stdin, json.dumps(job).encode())
            result = dict(np.load(io.BytesIO(_receive(process.stdout)), allow_pickle=False))
        except (BrokenPipeError, EOFError):
            raise RuntimeError(f"a process running {function} ended (exit status {process.wait()})") from None
        finally:
            idle.put(process)
        if MISTAKE in result:
            raise UserError(str(result[MISTAKE]))
        return result

    threads = ThreadPoolExecutor(n)
    try:
        yield from threads.map(run_one, jobs)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
            process.wait()


def _start(function: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "kws_s5.data.lra.parallel", function], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env=environment,
                            start_new_session=True)  # Ctrl-C is for the process that waits; it ends the others


def _resolved(function: str):  # noqa: ANN202
    module, name = function.split(":")
    return getattr(import_module(module), name)


def _send(pipe: BinaryIO, data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> bytes:
    head = pipe.read(8)
    size = int.from_bytes(head, "little")
    data = pipe.read(size) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < size:
        raise EOFError
    return data


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _work(function: str) -> None:
    run = _resolved(function)
    while True:
        try:
            job = json.loads(_receive(sys.stdin.buffer))
        except EOFError:
            return
        try:
            arrays = run(**job)
        except UserError as error:
            arrays = {MISTAKE: np.array(str(error))}
        result = io.BytesIO()
        np.savez(result, **arrays)
        try:
            _send(sys.stdout.buffer, result.getvalue())
        except BrokenPipeError:  # the process that waits was killed
            os._exit(1)


if __name__ == "__main__":
    _work(sys.argv[1])
