"""The real command kws-demo in a process of its own, with a model set by hand, and watched from outside."""

import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "import sys; from kws_s5.demo.cli import main; sys.exit(main())"]


@dataclass
class Demo:
    """A page that is being served."""

    url: str
    process: subprocess.Popen
    temporary: Path  # TMPDIR of the process
    home: Path  # its HOME and working directory
    outside: list = field(default_factory=list)  # connections that it made to other hosts
    seconds: float = 10.0  # limits of the page
    megabytes: float = 3.0

    def memory(self) -> float:
        """Resident MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def folder(self) -> Path:
        """The only folder that it may write in."""
        (folder,) = self.temporary.glob("kws-demo-*")
        return folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory, make_tone_bundle):
    """kws-demo with two copies of the tone model; a proxy that answers nothing counts what it wants from outside."""
    pytest.importorskip("gradio", reason="the demo needs gradio (extra demo)")
    base = tmp_path_factory.mktemp("demo")
    temporary, home, models = base / "tmp", base / "home", base / "models"
    for folder in (temporary, home, models):
        folder.mkdir()
    for name in ("tones", "again"):
        make_tone_bundle().save(models / f"{name}.safetensors")
    outside = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        threading.Thread(target=_count, args=(proxy, outside), daemon=True).start()
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        environment = {
            **os.environ,
            "TMPDIR": str(temporary),
            "HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "GRADIO_ANALYTICS_ENABLED": "True",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), address)
        arguments = [
            str(models / "tones.safetensors"),
            str(models / "again.safetensors"),
            "--port",
            "0",
            "--seconds",
            str(Demo.seconds),
            "--megabytes",
            str(Demo.megabytes),
        ]
        process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment, cwd=home)
        lines = []
        url = next(
            (word for line in process.stderr for word in lines.append(line) or line.split() if word.startswith("http")),
            "",
        )
        assert url, "".join(lines)
        threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True).start()
        try:
            yield Demo(url.rstrip("/"), process, temporary, home, outside)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()
    # gradio prints what hostile requests raise in it; nothing of ours may
    ours = [line for line in lines if line.lstrip().startswith("File") and "/demo/" in line]
    assert not ours and "Exception in ASGI" not in "".join(lines), "".join(lines)
    assert not list(temporary.glob("kws-demo-*")), "the temporary folder goes with the server"


def _count(proxy: socket.socket, outside: list) -> None:
    while True:
        try:
            connection, _ = proxy.accept()
        except OSError:
            return
        outside.append(connection.recv(200))
        connection.close()
