"""kws-serve: a wake-word service for Home Assistant and whatever else speaks the Wyoming protocol.

kws-serve                                            the shipped model at tcp://127.0.0.1:10400
kws-serve --model runs/spotter --uri tcp://0.0.0.0:10400      your own words, for the whole network
kws-serve --uri unix:///run/kws.sock
"""

import asyncio
import logging
import stat
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlparse

import tyro

from kws_s5.cli import guarded
from kws_s5.errors import UserError

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

DESCRIPTION = """Serves the words of one or more models as wake words over the Wyoming protocol (Home Assistant's voice
services). In Home Assistant: Settings, Devices & services, Add integration, Wyoming Protocol, this computer's address
and port. Ctrl-C or SIGTERM stops. Needs the extra: pip install 'kws-s5[serve]'."""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: tuple[str, ...] = ()
    """Run directories, models (also .onnx), shipped names, or a folder of models. Default: the shipped one."""
    uri: str = "tcp://127.0.0.1:10400"
    """Where to listen: tcp://HOST:PORT (0.0.0.0 for the whole network), unix:///PATH, or stdio://."""
    threshold: float | None = None
    """Score from which a word counts, for all words. Default: the model's own (kws-calibrate), else 0.5."""
    refractory: float = 1.0
    """Seconds in which the same word is not reported again."""
    max_clients: int = 64
    """Further clients are told that the service is busy."""
    threads: int = 2
    """Threads that run the models, for all clients together."""
    health: float = 0.0
    """Print a line about clients, sound and detections every so many seconds; 0: never."""
    zeroconf: str = ""
    """Announce the service on the local network under this name (needs the package zeroconf; tcp only)."""
    verbose: Flag = False
    """Say when a client is disconnected, and why."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0 after SIGTERM; 2 for a mistake; 130 after Ctrl-C."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-serve", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    try:
        from kws_s5.listening.wyoming_server import Service, names_of
    except ModuleNotFoundError as error:
        if error.name != "wyoming":
            raise
        raise UserError("wyoming is not installed: pip install 'kws-s5[serve]'") from error
    from kws_s5.config.checks import require
    from kws_s5.listening.events import SpotterConfig
    from kws_s5.listening.scan_cli import default_model
    from kws_s5.listening.spotter import KeywordSpotter, open_model

    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING, format="%(message)s", stream=sys.stderr
    )
    for name, least in (("max_clients", 1), ("threads", 1), ("health", 0)):
        require(
            getattr(arguments, name) >= least,
            f"--{name.replace('_', '-')}",
            getattr(arguments, name),
            f"{least} or more",
        )
    _check(arguments)
    sources = [path for source in arguments.model or (default_model(),) for path in _models(source)]
    models = names_of(sources, [open_model(source) for source in sources])
    config = SpotterConfig(refractory=arguments.refractory)
    for bundle in models.values():  # compiles the kernels, and refuses what cannot listen, before the first client
        KeywordSpotter(bundle, 16000.0, thresholds=arguments.threshold, config=config)
    with ThreadPoolExecutor(arguments.threads, thread_name_prefix="kws-serve") as executor:
        service = Service(
            models, executor, threshold=arguments.threshold, config=config, max_clients=arguments.max_clients
        )
        asyncio.run(_serve(arguments, service))


async def _serve(arguments: Arguments, service) -> None:
    from wyoming.server import AsyncServer

    from kws_s5.listening.wyoming_server import Client

    server = AsyncServer.from_uri(arguments.uri)
    tasks = [asyncio.create_task(_health(service, arguments.health))] if arguments.health else []
    if arguments.zeroconf:
        await _announce(arguments)
    print(
        f"kws-serve: {arguments.uri}, {len(service.words)} words of {len(service.models)} models: "
        f"{', '.join(service.words)}",
        file=sys.stderr,
        flush=True,
    )
    try:
        await server.run(partial(Client, service))
    finally:
        for task in tasks:
            task.cancel()


async def _health(service, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        print(
            f"kws-serve: {service.clients} clients, {service.seconds / 3600:.2f} hours of sound, "
            f"{service.detections} detections",
            file=sys.stderr,
            flush=True,
        )


async def _announce(arguments: Arguments) -> None:
    if urlparse(arguments.uri).scheme != "tcp":
        raise UserError("--zeroconf: only a tcp:// service can be announced")
    try:
        from wyoming.zeroconf import HomeAssistantZeroconf
    except ImportError as error:
        raise UserError("--zeroconf: needs the package zeroconf (pip install zeroconf)") from error
    await HomeAssistantZeroconf(urlparse(arguments.uri).port, name=arguments.zeroconf).register_server()


def _check(arguments: Arguments) -> None:
    """The address, before anything is loaded."""
    try:
        uri = urlparse(arguments.uri)
        if uri.scheme not in ("tcp", "unix", "stdio") or (uri.scheme == "tcp" and not (uri.hostname and uri.port)):
            raise ValueError
    except ValueError as error:
        raise UserError(f"--uri {arguments.uri!r}: give tcp://HOST:PORT, unix:///PATH or stdio://") from error
    path = Path(uri.path)
    if uri.scheme == "unix" and path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise UserError(f"--uri: {path} exists and is no socket; it would be replaced")


def _models(source: str) -> list[str]:
    """A model, or all model files of a folder that is no run."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        files = sorted(
            str(path)
            for path in folder.iterdir()
            if path.suffix in (".safetensors", ".onnx") and not path.stem.endswith("-clip")
        )
        if files and not (folder / "model.safetensors").exists():
            return files
    return [source]
