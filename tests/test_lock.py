"""A lock keeps others out while it is held, and only then: also when its holder is killed."""

import subprocess
import sys
import threading
import time

import pytest

from kws_s5.lock import locked

HOLD = (
    "import sys, time; from kws_s5.lock import locked\n"
    "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"
)


def test_a_held_lock_keeps_others_out_until_it_is_given_back(tmp_path):
    path = tmp_path / "new folder" / "lock"
    with locked(path), pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    with locked(path, wait=False):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BlockingIOError), locked(tmp_path / "lock", wait=False):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path / "lock", wait=False):
        pass


def test_a_holder_may_remove_its_lock_and_the_next_ones_still_exclude_each_other(tmp_path):
    """Also the one that had opened the removed file: it takes the one that is there now."""
    path, entered = tmp_path / "lock", []

    def wait() -> None:
        with locked(path):
            with pytest.raises(BlockingIOError), locked(path, wait=False):
                pass
            entered.append("waited")

    with locked(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.2)
        path.unlink()
    waiting.join(timeout=30)
    assert entered == ["waited"]
