"""The page on a port: gradio's server, closed down to what the page needs, with one temporary folder that stays small.

with serving({"kws12": bundle}, port=7860) as url: ...
"""

import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import gradio as gr
import numpy as np
from starlette.middleware import Middleware

from kws_s5.audio.files import Audio
from kws_s5.bundle import Bundle
from kws_s5.demo.app import Limits, build
from kws_s5.demo.degrade import DEGRADATIONS
from kws_s5.demo.examples import EXAMPLES
from kws_s5.demo.guard import Guard
from kws_s5.demo.live import Live
from kws_s5.demo.recording import examine
from kws_s5.errors import UserError

SWEEP = 30.0  # seconds between looks at the folder
EXAMPLES_FOLDER = "kws-examples"
HERE = Path(__file__).parent


class Sweeper:
    """Keeps the temporary folder small: files go when they are old, and no uploads are taken while it is full."""

    def __init__(self, folder: Path, page: gr.Blocks, limits: Limits) -> None:
        self.folder, self.page, self.limits = folder, page, limits
        self._looked, self._room = 0.0, True

    def may_upload(self) -> bool:
        """Whether there is room; looks at most once a second."""
        now = time.monotonic()
        if now - self._looked > 1.0:
            self._looked = now
            used = sum(size for _, _, size in self._files())
            self._room = used < self.limits.disk_megabytes * 1e6
        return self._room

    def sweep(self) -> None:
        """Removes what is old, and gradio's memory of it."""
        now = time.time()
        for path, modified, _ in list(self._files()):
            if now - modified > self.limits.keep_seconds:
                path.unlink(missing_ok=True)
                if path.parent != self.folder:
                    with suppress(OSError):  # it may hold others
                        path.parent.rmdir()
        for names in list(self.page.temp_file_sets):
            names -= {name for name in names.copy() if not os.path.exists(name)}

    def run(self, stop: Event) -> None:
        """Sweeps until told to stop."""
        while not stop.wait(SWEEP):
            self.sweep()

    def _files(self) -> Iterator[tuple[Path, float, int]]:
        for folder, inside, names in os.walk(self.folder):
            inside[:] = [name for name in inside if name != EXAMPLES_FOLDER]
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):  # files come and go
                    status = path.stat()
                    yield path, status.st_mtime, status.st_size


@contextmanager
def serving(
    models: Mapping[str, Bundle],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Iterator[str]:
    """Serves the page while the context is open, and yields its address.

    Args:
        models: by the names that visitors see.
        host: address to listen at; the default can be reached from this computer only.
        port: 0: a free one.

    Raises:
        UserError: the port is taken.
    """
    stop = Event()
    with TemporaryDirectory(prefix="kws-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(os.path.realpath(name))
        # gradio asks matplotlib, which the page does not use, for its backend at every call: "agg" is the quick answer
        with _environment(GRADIO_TEMP_DIR=str(folder), MPLCONFIGDIR=str(folder), MPLBACKEND="agg"):
            for bundle in models.values():
                _warm(bundle)
            page = build(models, folder=folder, examples=_examples(folder), limits=limits)
            sweeper = Sweeper(folder, page, limits)
            url = _launch(page, sweeper, host, port or _free_port(host), limits)
            Thread(target=sweeper.run, args=(stop,), daemon=True).start()
            try:
                yield url
            finally:
                stop.set()
                page.close(verbose=False)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _warm(bundle: Bundle) -> None:
    """Lets kernels be compiled now and not while somebody speaks."""
    rate = int(bundle.rate)
    Live(bundle).push(rate, np.zeros(rate // 2, np.int16))
    examine(bundle, Audio(np.zeros(rate // 2, np.float32), rate), DEGRADATIONS["8 kHz band-limited"])


def _launch(page: gr.Blocks, sweeper: Sweeper, host: str, port: int, limits: Limits) -> str:
    guard = Middleware(
        Guard, folder=str(sweeper.folder), max_upload=int(limits.megabytes * 1e6), may_upload=sweeper.may_upload
    )
    theme = gr.themes.Default(
        primary_hue="blue",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    page.queue(max_size=limits.queue, default_concurrency_limit=limits.studies, api_open=False)
    try:
        _, url, _ = page.launch(
            server_name=host,
            server_port=port,
            share=False,
            prevent_thread_lock=True,
            quiet=True,
            inbrowser=False,
            theme=theme,
            head=_style(),
            footer_links=["settings"],
            allowed_paths=[],
            app_kwargs={"middleware": [guard], "openapi_url": None, "docs_url": None, "redoc_url": None},
            max_file_size=int(limits.megabytes * 1e6),
            state_session_capacity=limits.sessions,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            enable_monitoring=False,
            run_history=False,
            show_error=False,
        )
    except OSError as error:
        raise UserError(f"port {port}: is taken; choose another one with --port, or --port 0 for a free one") from error
    return url


def _style() -> str:
    """In the page's head: gradio rewrites the selectors of what it is given as css."""
    return f"<style>{(HERE / 'style.css').read_text(encoding='utf-8')}</style>"


def _examples(folder: Path) -> dict[str, Path]:
    """Copies of the shipped examples in the folder, from where gradio may hand them out."""
    target = folder / EXAMPLES_FOLDER
    target.mkdir()
    return {title: Path(shutil.copy(HERE / "examples" / name, target)) for title, name in EXAMPLES.items()}


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
