"""Only what the page needs comes through to gradio."""

import asyncio

import pytest

pytest.importorskip("starlette", reason="the demo needs gradio (extra demo)")

from kws_s5.demo.guard import API, BODY, Guard  # noqa: E402


async def inner(scope, receive, send):
    """Reads the whole body and says how long it was."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


def ask(path, *, folder="/nowhere", method="GET", pieces=(b"",), headers=(), room=True, app=inner):
    """-> status, headers, body."""
    guard = Guard(app, folder=folder, max_upload=5 << 20, may_upload=lambda: room)
    messages = [{"type": "http.request", "body": p, "more_body": i + 1 < len(pieces)} for i, p in enumerate(pieces)]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": list(headers)}
    asyncio.run(guard(scope, receive, send))
    body = b"".join(m.get("body", b"") for m in sent)
    return sent[0]["status"], dict(sent[0]["headers"]), body


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/config",
        "/theme.css",
        "/assets/index.js",
        f"{API}/info",
        f"{API}/queue/join",
        f"{API}/queue/data",
        f"{API}/heartbeat/abc123",
        f"{API}/stream/0af/close",
    ],
)
def test_the_page_gets_what_it_needs(path):
    assert ask(path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        f"{API}/proxy=http://example.org/x",
        f"{API}/file=http://example.org/x",
        f"{API}/file=/etc/passwd",
        f"{API}/file/etc/passwd",
        "/monitoring",
        f"{API}/vibe-code",
        f"{API}/process_recording",
        "/docs",
        "/openapi.json",
        f"{API}/component_server",
        f"{API}/dev/reload",
        "/llms.txt",
        "/login",
        f"{API}/runs",
        "//etc/passwd",
    ],
)
def test_everything_else_is_refused(path):
    assert ask(path)[0] == 404


@pytest.mark.parametrize(
    "name",
    ["{0}/../secret", "{0}/link", "{0}/%2e%2e/secret", "{0}x/secret", "../secret", "x", "{0}/\0", "{0}/%00", "\0"],
)
def test_only_files_inside_the_folder_are_served(tmp_path, name):
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret").write_text("no")
    (folder / "sound.wav").write_text("yes")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert ask(f"{API}/file={folder}/sound.wav", folder=str(folder))[0] == 200
    assert ask(f"{API}/file={name.format(folder)}", folder=str(folder))[0] == 404


def test_large_bodies_are_refused_whether_they_say_so_or_not():
    path = f"{API}/queue/join"
    assert ask(path, method="POST", pieces=(b"x" * BODY,))[0] == 200
    assert ask(path, method="POST", headers=[(b"content-length", b"9999999")])[0] == 413
    assert ask(path, method="POST", headers=[(b"content-length", b"-1")])[0] == 413
    assert ask(path, method="POST", pieces=(b"x" * BODY, b"x"))[0] == 413
    assert ask(f"{API}/upload", method="POST", pieces=(b"x" * BODY, b"x" * BODY))[2] == str(2 * BODY).encode()
    assert ask(f"{API}/upload", method="POST", pieces=(b"x" * BODY,) * 7)[0] == 413


def test_no_uploads_are_taken_while_the_folder_is_full():
    assert ask(f"{API}/upload", method="POST", room=False)[0] == 503
    assert ask("/", room=False)[0] == 200


def test_answers_keep_the_page_from_fetching_elsewhere():
    for path in ("/", "/nothing"):
        policy = ask(path)[1][b"content-security-policy"].decode()
        assert "default-src 'self'" in policy
        assert "http" not in policy and "*" not in policy
    assert ask("/", method="DELETE")[0] == 405
