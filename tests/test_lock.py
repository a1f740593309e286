"""A lock keeps others out while it is held, and only then: also when its holder is killed."""

import subprocess
import sys

import pytest

from kws_s5.lock import locked

HOLD = ("import sys, time; from kws_s5.lock import locked\n"
        "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)")


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
