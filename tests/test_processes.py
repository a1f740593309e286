"""Several processes give what one gives, in order; whatever ends one of them ends all, in one line."""

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kws_s5.errors import UserError
from kws_s5.processes import mapped, report

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
JOBS = [(n, 7) for n in (9, 3, 12, 1, 5, 11)]


def alive(pid: int) -> bool:
    """Whether a process runs (one that ended and was not waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_ended(pids: list[int], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("n", [1, 2, 4])
def test_results_come_in_the_order_of_the_jobs(n: int) -> None:
    assert list(mapped(operator.mul, JOBS, n=n)) == [63, 21, 84, 7, 35, 77]
    assert list(mapped(operator.mul, [], n=n)) == []


@pytest.mark.parametrize("n", [1, 2])
def test_each_process_begins_once_and_its_own_value_comes_first(n: int) -> None:
    found = list(mapped(operator.add, [((i,),) for i in range(8)], n=n, begin=_begun))
    assert [last for *_, last in found] == list(range(8))
    assert len({pid for pid, _ in found}) <= n and (os.getpid() in {pid for pid, _ in found}) == (n == 1)


def _begun() -> tuple:  # sent by its name: the worker finds this file in its path
    return (os.getpid(),)


@pytest.mark.parametrize("n", [1, 2])
def test_progress_is_told_with_the_position_of_the_job(n: int) -> None:
    told = []
    found = mapped(report, [(value,) for value in "abc"], n=n, progress=lambda i, value: told.append((i, value)))
    assert list(found) == [None] * 3
    assert sorted(told) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize("n", [1, 2])
def test_what_a_job_raises_is_raised_here(n: int) -> None:
    with pytest.raises(ZeroDivisionError) as told:
        list(mapped(operator.truediv, [(1, 1), (1, 0), (1, 1)], n=n))
    assert n == 1 or "in a worker process" in "".join(told.value.__notes__)
    with pytest.raises(FileNotFoundError) as missing:
        list(mapped(os.stat, [("/no/such/file",)] * 2, n=n))
    assert missing.value.filename == "/no/such/file"


def test_what_a_job_prints_does_not_disturb_the_results(capfd) -> None:
    assert list(mapped(print, [("loud",)] * 4, n=2)) == [None] * 4
    assert capfd.readouterr().out == ""


@posix
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_killed_worker_is_one_line(how: signal.Signals) -> None:
    jobs = [("0",), (f"__import__('os').kill(__import__('os').getpid(), {int(how)})",), ("0",)]
    with pytest.raises(UserError, match=rf"ended before its work was done \(signal {int(how)};") as told:
        list(mapped(eval, jobs, n=2))
    assert "\n" not in str(told.value)


def test_a_worker_that_cannot_start_is_one_line(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match=r"\(exit status 1;"):
        list(mapped(operator.mul, JOBS, n=2))


PARENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where a shell ignores it
from kws_s5.cli import guarded
from kws_s5.processes import mapped
def command():
    for pid in mapped(eval, [("__import__('os').getpid()",), ("__import__('os').getpid()",)] +
                      [("print(__import__('os').getpid(), file=__import__('sys').stderr, flush=True) or "
                        "__import__('time').sleep(600)",)] * 6, n=2):
        pass
sys.exit(guarded(command))
"""


@pytest.fixture
def busy() -> Iterator[tuple[subprocess.Popen, list[int]]]:
    """A command and the ids of its two workers, which work for ten minutes."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stderr=subprocess.PIPE, text=True) as parent:
        yield parent, [int(parent.stderr.readline()) for _ in range(2)]
        parent.kill()


@posix
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_when_their_parent_is_killed(busy: tuple, how: signal.Signals) -> None:
    parent, workers = busy
    assert all(map(alive, workers))
    parent.send_signal(how)
    parent.wait()
    assert all_ended(workers)


@posix
def test_ctrl_c_ends_everything_at_once_and_quietly(busy: tuple) -> None:
    parent, workers = busy
    parent.send_signal(signal.SIGINT)
    assert parent.communicate(timeout=60)[1] == "stopped.\n" and parent.returncode == 130
    assert all_ended(workers)


@posix
def test_a_killed_worker_gives_exit_status_2(busy: tuple) -> None:
    parent, workers = busy
    os.kill(workers[0], signal.SIGKILL)
    said = parent.communicate(timeout=60)[1]
    assert parent.returncode == 2 and said.startswith("error: a worker process ended") and said.count("\n") == 1
    assert all_ended(workers)


def test_workers_end_when_nobody_takes_the_results_any_more() -> None:
    results = mapped(eval, [("__import__('os').getpid()",)] + [("__import__('time').sleep(600)",)] * 3, n=2)
    pid = next(results)
    results.close()
    assert all_ended([pid])
