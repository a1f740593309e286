"""One function over many jobs in several processes, results in the order of the jobs.

    for result in mapped(function, jobs, n=4): ...                             # function(*job)
    for result in mapped(function, jobs, n=4, begin=partial(load, file)): ...  # function(loaded, *job)

Plain subprocesses of this interpreter, where ``concurrent.futures`` has less: a user's script needs no
``if __name__ == "__main__"``; workers end when their parent is killed (their input ends); Ctrl-C is the parent's alone,
which ends them at once; a killed worker is one line; nothing waits for jobs whose results nobody takes any more.
Between parent and workers travel pickles, through pipes that nobody else can open: files are never read this way.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import IO, Any

from kws_s5.errors import UserError

MOST = 61 if sys.platform == "win32" else 1024  # processes: Windows waits for no more than 63 things at once
FEW = 4  # jobs: fewer are sooner done here than processes start
LOOK = 0.5  # seconds: on Windows a wait cannot be interrupted by Ctrl-C before it ends
RESULT, PROGRESS, FAILURE = range(3)  # kinds of messages: (kind, value)
Progress = Callable[[int, Any], None]  # (position of the job, value it reported)

_report: Callable[[Any], None] = lambda value: None  # noqa: E731  # of the job that runs in this process


def n_processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def report(value: Any) -> None:
    """Called by a job: hands ``value`` to the ``progress`` of the ``mapped`` that runs it."""
    _report(value)


def mapped(
    function: Callable,
    jobs: Sequence[tuple],
    *,
    n: int | None = None,
    begin: Callable[[], Any] | None = None,
    progress: Progress | None = None,
    threads: int = 1,
) -> Iterator[Any]:
    """``function(*job)`` of every job; functions, jobs and results must be picklable (functions: of a module).

    Args:
        n: processes, at most one a job (and 61 on Windows); 1: none, the work is done here; None: one a processor,
            and none for fewer than four jobs.
        begin: called once in each process; what it returns is the first argument of ``function``.
        progress: called here, while results are waited for, with what jobs report.
        threads: that numeric libraries use in each process.

    Raises:
        UserError: a process was ended from outside. What ``function`` raises is raised here too.
    """
    if n is None:
        n = n_processors() if len(jobs) >= FEW else 1
    n = min(n, len(jobs), MOST)
    if n <= 1:
        yield from _here(function, jobs, begin, progress)
        return
    queue = iter(enumerate(jobs))
    found: SimpleQueue = SimpleQueue()  # of (position, message)
    lock = threading.Lock()
    workers: list[subprocess.Popen] = []
    try:
        for _ in range(n):
            workers.append(_start(threads))
            threading.Thread(
                target=_feed, args=(workers[-1], (function, begin), queue, lock, found), daemon=True
            ).start()
        yield from _in_order(found, len(jobs), progress)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()


def _here(
    function: Callable, jobs: Sequence[tuple], begin: Callable[[], Any] | None, progress: Progress | None
) -> Iterator[Any]:
    global _report
    first = (begin(),) if begin else ()
    for i, job in enumerate(jobs):
        before, _report = _report, partial(progress, i) if progress else lambda value: None
        try:
            result = function(*first, *job)
        finally:
            _report = before
        yield result


def _in_order(found: SimpleQueue, n_jobs: int, progress: Progress | None) -> Iterator[Any]:
    waiting: dict[int, Any] = {}  # results that came before their turn
    for turn in range(n_jobs):
        while turn not in waiting:
            try:
                i, (kind, value) = found.get(timeout=LOOK)
            except Empty:
                continue
            if kind == FAILURE:
                raise value
            if kind == RESULT:
                waiting[i] = value
            elif progress:
                progress(i, value)
        yield waiting.pop(turn)


def _feed(worker: subprocess.Popen, what: tuple, queue: Iterator, lock: threading.Lock, found: SimpleQueue) -> None:
    """Gives one worker job after job and passes its messages on; a thread of the parent."""
    assert worker.stdin and worker.stdout
    i = -1
    try:
        _send(worker.stdin, what)
        while True:
            with lock:
                i, job = next(queue, (-1, None))
            if job is None:
                worker.stdin.close()  # it ends
                return
            _send(worker.stdin, job)
            kind = PROGRESS
            while kind == PROGRESS:
                kind, value = _receive(worker.stdout)
                found.put((i, (kind, value)))
    except (EOFError, OSError):
        found.put((i, (FAILURE, _ended(worker.wait()))))
    except Exception as error:  # a job that cannot be pickled
        found.put((i, (FAILURE, error)))


def _ended(status: int) -> UserError:
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return UserError(
        f"a worker process ended before its work was done ({how}; often the system's answer to too little "
        "memory); try again, with fewer processes"
    )


def _start(threads: int) -> subprocess.Popen:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "OMP_NUM_THREADS": str(threads),
    }
    own_group: dict[str, Any] = {"start_new_session": True}  # Ctrl-C in the terminal does not reach it
    if sys.platform == "win32":
        own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from kws_s5.processes import work; work()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        **own_group,
    )


def _send(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, protocol=5)
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    head = pipe.read(8)
    size = int.from_bytes(head, "little")
    data = pipe.read(size) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < size:
        raise EOFError
    return pickle.loads(data)


def work() -> None:
    """The worker process: jobs from stdin, messages to stdout, until stdin ends."""
    global _report
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the pipes are ours alone: what a job prints goes to stderr
    os.dup2(2, 1)
    given: SimpleQueue = SimpleQueue()
    threading.Thread(target=_watch, args=(source, given), daemon=True).start()

    def answer(kind: int, value: Any) -> None:
        try:
            _send(sink, (kind, value))
        except OSError:  # the parent was killed
            os._exit(1)

    _report = lambda value: answer(PROGRESS, value)  # noqa: E731
    function: Callable | None = None
    first: tuple = ()
    while True:
        try:
            message = pickle.loads(given.get())
            if function is None:
                function, begin = message
                first = (begin(),) if begin else ()
            else:
                answer(RESULT, function(*first, *message))
        except Exception as error:
            answer(FAILURE, _portable(error))
            os._exit(1)


def _watch(source: IO[bytes], given: SimpleQueue) -> None:
    """Takes what the parent sends; when it sends no more, or is killed, this process ends whatever it is doing."""
    while True:
        head = source.read(8)
        size = int.from_bytes(head, "little")
        data = source.read(size) if len(head) == 8 else b""
        if len(head) < 8 or len(data) < size:
            os._exit(0)
        given.put(data)


def _portable(error: Exception) -> Exception:
    """The error itself, with its traceback as a note; a RuntimeError in its place if it cannot travel."""
    error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        copy = pickle.loads(pickle.dumps(error))
        if str(copy) == str(error):
            return error
    except Exception:
        pass
    return RuntimeError("".join(traceback.format_exception(error)))
