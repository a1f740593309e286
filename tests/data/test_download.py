"""Downloads from a real server on this machine that cuts, lies, refuses and forgets."""

import hashlib
import http.server
import os
import re
import threading
import time

import pytest

from kws_s5.data import download as module
from kws_s5.data.download import download
from kws_s5.errors import UserError

CONTENT = os.urandom(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves ``content``; behaviour is set by attributes, what was asked for is in ``ranges``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges = CONTENT, []
        self.cuts, self.honours_ranges, self.errors, self.redirect, self.sends_length = [], True, [], "", True
        self.wrong_range = False
        self.url = f"http://127.0.0.1:{self.server_address[1]}/data.tar.gz"

    def handle_error(self, *_) -> None:
        pass  # a client that hangs up, as ours does for files too large


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        server.ranges.append(self.headers.get("Range"))
        if server.redirect:
            return self.answer(302, {"Location": server.redirect})
        if server.errors:
            return self.answer(server.errors.pop(0), {})
        start, status = 0, 200
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        total = len(server.content)
        if wanted and server.honours_ranges:
            start, status = int(wanted[1]), 206
            if start >= total:
                return self.answer(416, {"Content-Range": f"bytes */{total}"})
        headers = {"Content-Length": str(total - start)} if server.sends_length else {}
        if status == 206:
            headers["Content-Range"] = f"bytes {start + 1 if server.wrong_range else start}-{total - 1}/{total}"
        self.answer(status, headers)
        cut = server.cuts.pop(0) if server.cuts else total
        self.wfile.write(server.content[start : start + cut])

    def answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()


@pytest.fixture
def server():
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def fetch(server, tmp_path, **options):
    options = {"sha256": SHA256, "backoff": 0.001, "timeout": 5.0} | options
    return download(server.url, tmp_path / "d" / "data.tar.gz", **options)


def part(tmp_path):
    (tmp_path / "d").mkdir(exist_ok=True)
    return tmp_path / "d" / "data.tar.gz.part"


def test_a_file_arrives_whole_and_is_not_fetched_twice(server, tmp_path):
    target = fetch(server, tmp_path)
    assert target.read_bytes() == CONTENT and os.listdir(target.parent) == [target.name]
    fetch(server, tmp_path)
    assert server.ranges == [None]


def test_a_cut_connection_is_resumed_where_it_stopped(server, tmp_path):
    server.cuts = [1_000_000, 700_000, 0]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000000-", "bytes=1700000-", "bytes=1700000-"]


def test_a_later_call_goes_on_with_what_is_there(server, tmp_path):
    part(tmp_path).write_bytes(CONTENT[:2_000_000])
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == ["bytes=2000000-"]


def test_a_complete_part_only_needs_its_name(server, tmp_path):
    part(tmp_path).write_bytes(CONTENT)
    assert fetch(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("behaviour", ["honours_ranges", "sends_length"])
def test_servers_that_ignore_ranges_or_tell_no_size_serve_too(server, tmp_path, behaviour):
    setattr(server, behaviour, False)
    part(tmp_path).write_bytes(CONTENT[:500])
    assert fetch(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"other bytes" * 1000, CONTENT + b"too long"])
def test_a_wrong_part_is_thrown_away_and_fetched_afresh(server, tmp_path, stale):
    part(tmp_path).write_bytes(stale)
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    server.content = b"<html>log in to the hotel network</html>"
    with pytest.raises(UserError, match="SHA-256") as error:
        fetch(server, tmp_path)
    assert "\n" not in str(error.value) and os.listdir(tmp_path / "d") == []


def test_a_file_of_that_name_with_other_content_is_not_overwritten(server, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/data.tar.gz").write_text("mine")
    with pytest.raises(UserError, match="not the expected file"):
        fetch(server, tmp_path)
    assert (tmp_path / "d/data.tar.gz").read_text() == "mine"


def test_passing_server_errors_are_retried_and_lasting_ones_told(server, tmp_path):
    server.errors = [503, 429, 500]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    server.errors = [404]
    with pytest.raises(UserError, match="HTTP 404"):
        download(server.url, tmp_path / "other", sha256=SHA256)
    server.errors, server.ranges = [503] * 9, []
    with pytest.raises(UserError, match="HTTP 503"):
        download(server.url, tmp_path / "other", sha256=SHA256, backoff=0.001, retries=3)
    assert len(server.ranges) == 3


def test_a_server_that_answers_another_range_is_not_believed(server, tmp_path):
    part(tmp_path).write_bytes(CONTENT[:100])
    server.wrong_range = True
    with pytest.raises(UserError, match="another part"):
        fetch(server, tmp_path, retries=2)


def test_no_server_no_hang(tmp_path):
    start = time.monotonic()
    with pytest.raises(UserError, match="check the connection"):
        download("http://127.0.0.1:9/x", tmp_path / "x", sha256=SHA256, backoff=0.001, retries=2)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/etc/passwd", "data:,x", ""])
def test_only_http_is_spoken(tmp_path, url):
    with pytest.raises(UserError, match="only http"):
        download(url, tmp_path / "x", sha256=SHA256)


def test_redirects_follow_http_only(server, tmp_path):
    server.redirect = "file:///etc/passwd"
    with pytest.raises(UserError):
        fetch(server, tmp_path, retries=1)
    server.redirect = server.url  # in circles
    with pytest.raises(UserError):
        fetch(server, tmp_path, retries=1)
    assert os.listdir(tmp_path / "d") == []


@pytest.mark.parametrize("sends_length", [True, False])
def test_too_large_files_are_stopped(server, tmp_path, sends_length):
    server.sends_length = sends_length
    with pytest.raises(UserError, match="allowed"):
        fetch(server, tmp_path, max_bytes=1_000_000)
    assert not part(tmp_path).exists() or part(tmp_path).stat().st_size <= 1_000_000


def test_a_full_disk_is_told_before_it_fills(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "has_room", lambda folder, n_bytes: False)
    with pytest.raises(UserError, match="free some space"):
        fetch(server, tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_fills_meanwhile_is_one_line(server, tmp_path):
    part(tmp_path).symlink_to("/dev/full")
    with pytest.raises(UserError, match="free some space"):
        fetch(server, tmp_path)
