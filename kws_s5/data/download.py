"""Downloads a large file over http(s): resumed after interruptions, verified by its SHA-256, whole or not at all."""

import errno
import hashlib
import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TimeRemainingColumn, TransferSpeedColumn

from kws_s5 import __version__
from kws_s5.data.archive import has_room
from kws_s5.errors import UserError

BLOCK = 2**18
MAX_BYTES = 16 * 2**30
RETRIED = {408, 425, 429, 500, 502, 503, 504}  # HTTP answers that may be better next time


class _Retry(Exception):
    """This attempt failed, the next may not."""


def download(
    url: str,
    target: str | Path,
    *,
    sha256: str,
    progress: bool = True,
    retries: int = 5,
    backoff: float = 1.0,
    timeout: float = 30.0,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Fetches ``url`` into ``target`` and returns it; a verified file that is there already is kept.

    Bytes gather in ``target`` + ".part", where a later call goes on if the server can; the file gets its name after its
    checksum was found right. For several processes hold a lock (kws_s5.lock) around the call.

    Args:
        retries: attempts in a row without a new byte before giving up.
        backoff: seconds before the second attempt; doubled each time, 30 s at most.
        timeout: seconds without an answer that end an attempt.
        max_bytes: refuse larger files.

    Raises:
        UserError: not http(s), not reachable, refused by the server, too large, wrong checksum, or disk full.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"cannot download {url!r}: only http and https addresses are fetched")
    target = Path(target)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return _kept(target, sha256)
        with _bar(progress) as bar:
            task = bar.add_task(target.name, total=None)
            resumed = _fetch_all(url, part, bar, task, retries, backoff, timeout, max_bytes)
            if _sha256(part) != sha256 and resumed:  # the file on the server may have changed since the first half
                part.unlink()
                _fetch_all(url, part, bar, task, retries, backoff, timeout, max_bytes)
        return _verified(url, part, target, sha256)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        mend = "free some space and start again, it goes on where it stopped" if full else "choose another place"
        raise UserError(f"cannot write {target} ({error.strerror or error}): {mend}") from None


def _kept(target: Path, sha256: str) -> Path:
    if not target.is_file() or _sha256(target) != sha256:
        raise UserError(f"{target} exists but is not the expected file (wrong checksum): remove it and start again")
    return target


def _verified(url: str, part: Path, target: Path, sha256: str) -> Path:
    found = _sha256(part)
    if found != sha256:
        part.unlink()
        raise UserError(
            f"{url} has SHA-256 {found[:12]}... instead of {sha256[:12]}...: the file changed or a proxy "
            "answered; the copy was removed, try again or fetch it by hand"
        )
    part.replace(target)
    return target


def _fetch_all(
    url: str, part: Path, bar: Progress, task: TaskID, retries: int, backoff: float, timeout: float, max_bytes: int
) -> bool:
    """Attempts until the whole file is there; whether it was put together from several answers."""
    failures, resumed = 0, False
    while True:
        before = part.stat().st_size if part.exists() else 0
        resumed |= before > 0
        try:
            _attempt(url, part, before, bar, task, timeout, max_bytes)
            return resumed
        except _Retry as error:
            gained = part.exists() and part.stat().st_size > before
            failures = 1 if gained else failures + 1
            if failures >= retries:
                raise UserError(
                    f"cannot download {url} ({error}): check the connection and start again, it goes on "
                    "where it stopped"
                ) from None
            time.sleep(min(30.0, backoff * 2 ** (failures - 1)))


def _attempt(url: str, part: Path, start: int, bar: Progress, task: TaskID, timeout: float, max_bytes: int) -> None:
    headers = {"User-Agent": f"kws-s5/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with _opener().open(urllib.request.Request(url, headers=headers), timeout=timeout) as answer:
            start, total = _extent(answer, start)
            if max(total or 0, start) > max_bytes:
                raise UserError(f"{url} has {total} bytes, more than the {max_bytes} allowed: not fetched")
            if total and not has_room(part.parent, total - start):
                raise OSError(errno.ENOSPC, f"needs {total - start} bytes of free space")
            bar.update(task, completed=start, total=total)
            end = _save(answer, part, start, bar, task, max_bytes)
    except urllib.error.HTTPError as error:
        _explain(url, part, start, error)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise _Retry(getattr(error, "reason", None) or error or type(error).__name__) from None
    else:
        if total is not None and end < total:
            raise _Retry(f"the connection ended after {end} of {total} bytes")


def _extent(answer: http.client.HTTPResponse, start: int) -> tuple[int, int | None]:
    """Where the answer's bytes belong, and the size of the whole file if the server tells."""
    if answer.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", "").strip())
        if found and int(found[1]) == start:
            return start, None if found[2] == "*" else int(found[2])
        raise _Retry("the server answered with another part of the file")
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None  # the server ignores Range: from the start


def _save(answer: http.client.HTTPResponse, part: Path, start: int, bar: Progress, task: TaskID, max_bytes: int) -> int:
    end = start
    with open(part, "r+b" if start else "wb") as file:
        file.seek(start)
        while data := answer.read(BLOCK):
            end += len(data)
            if end > max_bytes:
                raise UserError(f"{answer.url} sends more than the {max_bytes} bytes allowed: stopped")
            file.write(data)
            bar.update(task, completed=end)
    return end


def _explain(url: str, part: Path, start: int, error: urllib.error.HTTPError) -> None:
    """Passes an HTTP error on: 416 after a resume is the end of the file or a wrong .part, others may be transient."""
    if error.code == 416 and start:
        whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", "").strip())
        if whole and int(whole[1]) == start:
            return
        part.unlink()
        raise _Retry("the server cannot go on from here")
    if error.code in RETRIED:
        raise _Retry(f"HTTP {error.code} {error.reason}")
    raise UserError(f"cannot download {url} (HTTP {error.code} {error.reason}): check the address") from None


def _opener() -> urllib.request.OpenerDirector:
    """Speaks http and https only, also where a server redirects to another scheme."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bar(progress: bool) -> Progress:
    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not (progress and console.is_terminal))
