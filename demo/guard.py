"""What stands between the browser and gradio: only the addresses that the page needs, only bodies of a fair size.

Refused before gradio sees them: every other address (proxies, development tools, monitoring), files outside the
temporary folder, and bodies that are too large. Answers carry headers that keep the page from fetching anything from
another host. Plain ASGI.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from starlette.requests import ClientDisconnect

API = "/gradio_api"
OPEN = re.compile(
    r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/(assets|static|svelte)/.+"
    rf"|{API}/(info|startup-events|app_id|upload_progress|upload|cancel|reset|login_check|theme\.css)/?"
    rf"|{API}/(heartbeat|call)/[\w/-]+|{API}/queue/(join|data)|{API}/stream/[\w-]+(/close)?"
)
FILE = f"{API}/file="
BODY = 1 << 20  # bytes of any body but an upload
UPLOAD = re.compile(rf"{API}/upload/?")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self' data: blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class TooLarge(Exception):
    """A body went over its limit."""


class Guard:
    """ASGI middleware."""

    def __init__(self, app: Callable, *, folder: str, max_upload: int, may_upload: Callable[[], bool]) -> None:
        """folder: whose files may be read. max_upload: bytes. may_upload: False while the folder is full."""
        self.app, self.folder, self.max_upload, self.may_upload = app, folder, max_upload, may_upload

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path, sent = scope["path"], False
        limit = self.max_upload + BODY if UPLOAD.fullmatch(path) else BODY

        async def limited() -> dict:
            nonlocal limit
            message = await receive()
            limit -= len(message.get("body", b""))
            if limit < 0:
                raise TooLarge
            return message

        async def marked(message: dict) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = True
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        status, reason = self._refusal(scope, limit)
        if status:
            return await _answer(marked, status, reason)
        try:
            await self.app(scope, limited, marked)
        except ClientDisconnect:
            pass  # the page was closed in the middle of an upload
        except TooLarge:
            if not sent:
                await _answer(marked, 413, "too large for this page")

    def _refusal(self, scope: dict, limit: int) -> tuple[int, str]:
        """Status and reason; 0: come in."""
        path = scope["path"]
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not (OPEN.fullmatch(path) or (path.startswith(FILE) and self._inside(path.removeprefix(FILE)))):
            return 404, "nothing here"
        if scope["method"] not in ("GET", "HEAD", "POST", "OPTIONS"):
            return 405, "not allowed"
        if not length.isdigit() or int(length) > limit:
            return 413, "too large for this page"
        if UPLOAD.fullmatch(path) and not self.may_upload():
            return 503, "too many uploads at the moment; try again in a minute"
        return 0, ""

    def _inside(self, name: str) -> bool:
        """Whether a path (also when encoded once more) is that of a file in the folder, links resolved."""
        names = {name, unquote(name)}
        if "\0" in unquote(name):  # no file is called so, and realpath would raise
            return False
        return all(Path(os.path.realpath(n)).is_relative_to(self.folder) and ".." not in Path(n).parts for n in names)


async def _answer(send: Callable, status: int, reason: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(reason)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reason.encode()})
