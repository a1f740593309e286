"""Speech Commands: constants against torchaudio's, and fetching from a server on this machine."""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import tarfile
import threading

import pytest

from kws_s5.data.keywords import speech_commands as sc
from kws_s5.errors import UserError


def test_releases_are_those_torchaudio_knows():
    theirs = pytest.importorskip("torchaudio.datasets.speechcommands")._CHECKSUMS
    ours = {release.url.rsplit("/", 1)[1]: release.sha256 for release in sc.RELEASES.values()}
    assert ours == {url.rsplit("/", 1)[1]: checksum for url, checksum in theirs.items()}


def test_words_are_35_and_hold_the_ten_commands():
    assert len(set(sc.WORDS_35)) == 35 and set(sc.COMMANDS_10) < set(sc.WORDS_35)
    assert sc.WORDS_35[:17] == tuple(sorted(sc.WORDS_35[:17])) and sc.WORDS_35[17:] == tuple(sorted(sc.WORDS_35[17:]))
    assert len(sc.LABELS_12) == 12


def archive_of(files: list[str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name in files:
            info = tarfile.TarInfo("./" + name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))
    return raw.getvalue()


@pytest.fixture
def release(monkeypatch):
    """A small release in the official layout, served on 127.0.0.1 under the official checksum check."""
    files = [f"{word}/{n}_nohash_0.wav" for word in sc.WORDS_35 for n in ("aa", "bb")]
    content = archive_of([*files, "_background_noise_/hum.wav", "validation_list.txt", "testing_list.txt"])

    class Handler(http.server.BaseHTTPRequestHandler):
        served = 0

        def log_message(self, *_):
            pass

        def do_GET(self):
            Handler.served += 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/speech_commands_v0.02.tar.gz"
        monkeypatch.setitem(sc.RELEASES, "v0.02", sc.Release(url, hashlib.sha256(content).hexdigest()))
        yield Handler
        server.shutdown()


def test_fetch_leaves_the_data_set_and_nothing_else(release, tmp_path):
    root = sc.fetch(tmp_path / "sc", "v0.02")
    assert sc.is_release(root) and not sc.is_test_archive(root)
    assert (root / "yes/aa_nohash_0.wav").read_bytes() == b"yes/aa_nohash_0.wav"
    assert os.listdir(tmp_path) == ["sc"]
    sc.fetch(root, "v0.02")
    assert release.served == 1


def test_processes_that_start_at_once_fetch_once(release, tmp_path):
    script = (
        "import sys; from kws_s5.data.keywords import speech_commands as sc;"
        "sc.RELEASES['v0.02'] = sc.Release(*sys.argv[1:3]); sc.fetch(sys.argv[3])"
    )
    known = sc.RELEASES["v0.02"]
    command = [sys.executable, "-c", script, known.url, known.sha256, str(tmp_path / "sc")]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [p.wait(60) for p in processes] == [0, 0, 0]
    assert release.served == 1 and os.listdir(tmp_path) == ["sc"]


def test_a_folder_with_other_things_is_left_alone(release, tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UserError, match="another folder"):
        sc.fetch(tmp_path)
    assert release.served == 0 and os.listdir(tmp_path) == ["mine"]
    with pytest.raises(UserError, match="v0.01 or v0.02"):
        sc.fetch(tmp_path / "new", "v0.03")


def test_the_12_class_test_archive_is_recognised_and_read(tmp_path):
    for label in sc.LABELS_12:
        (tmp_path / label).mkdir()
        (tmp_path / label / "1a_nohash_0.wav.wav").write_bytes(b"")
        (tmp_path / label / "0b_nohash_1.wav").write_bytes(b"")
        (tmp_path / label / "._0b_nohash_1.wav").write_bytes(b"")
        (tmp_path / label / "readme.txt").write_bytes(b"")
    assert sc.is_test_archive(tmp_path) and not sc.is_release(tmp_path)
    clips = sc.read_test_archive(tmp_path)
    assert len(clips) == 24 and all(path.parent.name == label for path, label in clips)
    (tmp_path / "_silence_").rename(tmp_path / "quiet")
    with pytest.raises(UserError, match="_silence_"):
        sc.read_test_archive(tmp_path)
