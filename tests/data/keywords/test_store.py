"""The store of decoded clips: exact, made once, noticed when files change, never read half-written."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from kws_s5.audio.files import load_audio, save_wav
from kws_s5.data.keywords.manifest import scan
from kws_s5.data.keywords.store import KEPT, Store, open_store
from kws_s5.errors import UserError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for word in ("yes", "no"):
        (tmp_path / "words" / word).mkdir(parents=True)
        for i in range(6):
            x = rng.integers(-32768, 32768, 1000 + 100 * i).astype(np.int16)
            save_wav(tmp_path / "words" / word / f"s{i}_nohash_0.wav", x, (8000, 16000, 44100)[i % 3])
    return tmp_path / "words"


def opened(root: Path, **options: object) -> Store:
    return open_store(root, scan(root).clips, cache=str(root.parent / "cache"), **options)


def stores(root: Path) -> list[Path]:
    return list((root.parent / "cache" / "clips").glob("*/*"))


@pytest.mark.parametrize("n_workers", [1, 3])
def test_16_bit_clips_are_stored_exactly_by_any_number_of_workers(root: Path, n_workers: int) -> None:
    store = opened(root, n_workers=n_workers)
    for clip in scan(root).clips:
        found, row = load_audio(root / clip.id), store.rows[clip.id]
        assert np.array_equal(store.waveform(row), found.waveform) and store.index["rate"][row] == found.rate
    assert not store.failures and store.readable("yes/s0_nohash_0.wav") and not store.readable("yes/gone.wav")


def test_other_samples_keep_15_bits_below_their_peak_and_never_clip(root: Path) -> None:
    x = (1e-3 * np.sin(np.arange(2000) / 9)).astype(np.float32)
    for name, level in (("quiet", 1.0), ("hot", 3000.0)):
        soundfile.write(root / "yes" / f"{name}.wav", x * np.float32(level), 16000, subtype="FLOAT")
    soundfile.write(root / "yes" / "stereo.wav", np.stack([x, 2 * x], axis=1), 16000, subtype="PCM_24")
    store = opened(root)
    for name in ("quiet", "hot", "stereo"):
        expected = load_audio(root / "yes" / f"{name}.wav").waveform
        found = store.waveform(store.rows[f"yes/{name}.wav"])
        assert np.abs(found - expected).max() <= np.abs(expected).max() / 65000


def test_it_is_made_once_and_again_when_files_change_appear_or_go(root: Path) -> None:
    first = opened(root).folder
    assert opened(root).folder == first
    save_wav(root / "yes" / "s0_nohash_0.wav", np.zeros(50), 16000)
    changed = opened(root)
    assert changed.folder != first and not changed.waveform(changed.rows["yes/s0_nohash_0.wav"]).any()
    save_wav(root / "yes" / "new.wav", np.ones(50) / 2, 16000)
    assert opened(root).readable("yes/new.wav")
    (root / "yes" / "new.wav").unlink()
    assert opened(root).folder == changed.folder  # the same files as before: their store is still there


def test_old_stores_of_a_folder_are_removed(root: Path) -> None:
    for n in range(KEPT + 3):
        save_wav(root / "yes" / "s0_nohash_0.wav", np.zeros(50 + n), 16000)
        opened(root)
    assert len(stores(root)) == KEPT


def test_unreadable_files_are_kept_by_reason_and_tried_again(root: Path) -> None:
    bad = root / "yes" / "bad.wav"
    bad.write_bytes(b"no sound")
    modified = os.stat(bad).st_mtime_ns
    assert list(opened(root).failures) == ["yes/bad.wav"] and "bad.wav" in opened(root).failures["yes/bad.wav"]
    shutil.copyfile(root / "yes" / "s0_nohash_0.wav", bad)
    os.truncate(bad, 8)
    bad.write_bytes((root / "yes" / "s0_nohash_0.wav").read_bytes())  # readable by now, as after chmod
    os.utime(bad, ns=(modified, modified))
    assert not opened(root).failures


def test_a_folder_of_unreadable_files_is_a_store_too(tmp_path: Path) -> None:
    (tmp_path / "words" / "yes").mkdir(parents=True)
    for i in range(3):
        (tmp_path / "words" / "yes" / f"{i}.wav").write_bytes(b"?")
    assert len(opened(tmp_path / "words").failures) == 3


@pytest.mark.parametrize("damage", ["cut shard", "cut index", "no json", "wrong json", "other version", "empty json"])
def test_damaged_stores_are_never_read_but_made_again(root: Path, damage: str) -> None:
    folder = opened(root).folder
    if damage == "cut shard":
        os.truncate(folder / "shard-0.i16", 100)
    elif damage == "cut index":
        os.truncate(folder / "index.npy", 200)
    elif damage == "no json":
        (folder / "store.json").unlink()
    else:
        text = (folder / "store.json").read_text()
        other = text.replace('"version": 1', '"version": 0')
        wrong = {"wrong json": text[:50], "other version": other, "empty json": "[]"}
        (folder / "store.json").write_text(wrong[damage])
    for clip in scan(root).clips:
        store = opened(root)
        assert np.array_equal(store.waveform(store.rows[clip.id]), load_audio(root / clip.id).waveform)


def test_a_store_travels_to_another_process_by_its_folder(root: Path) -> None:
    store = opened(root)
    data = pickle.dumps(store)
    assert len(data) < 1000 and np.array_equal(pickle.loads(data).waveform(3), store.waveform(3))


PROGRAM = """
import sys
from kws_s5.data.keywords.manifest import scan
from kws_s5.data.keywords.store import open_store
print("ready", flush=True)
store = open_store(sys.argv[1], scan(sys.argv[1]).clips, cache=sys.argv[2])
print(store.folder, len(store.rows), flush=True)
"""


def start(root: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(root), str(root.parent / "cache")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_several_processes_may_start_at_once(root: Path) -> None:
    processes = [start(root) for _ in range(4)]
    said = {process.communicate(timeout=120)[0] for process in processes}
    assert said == {f"ready\n{stores(root)[0]} 12\n"} and len(stores(root)) == 1


def test_a_killed_process_leaves_nothing_that_is_taken_for_a_store(root: Path) -> None:
    data = (root / "yes" / "s5_nohash_0.wav").read_bytes()
    for i in range(400):
        (root / "yes" / f"more{i}.wav").write_bytes(data)
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2):
        process = start(root)
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for folder in stores(root):
            if not folder.name.startswith("."):
                assert len(Store(folder).rows) == 412  # finished before it was killed: whole
    store = opened(root)
    assert len(store.rows) == 412 and not store.failures
    assert [path for path in stores(root) if not path.name.startswith(".")] == [store.folder]


def test_a_cache_that_cannot_be_written_is_one_clear_error(root: Path) -> None:
    (root.parent / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"data\.cache"):
        open_store(root, scan(root).clips, cache=str(root.parent / "file" / "cache"))


def test_a_full_disk_is_one_clear_error_and_leaves_no_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kws_s5.data.keywords.store.os.fsync", full)
    with pytest.raises(UserError, match=r"No space left.*data\.cache"):
        opened(root)
    monkeypatch.undo()
    assert len(opened(root).rows) == 12
