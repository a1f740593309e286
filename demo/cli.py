"""kws-demo: the page in which a model can be tried, on this computer.

kws-demo                              the shipped model
kws-demo runs/quickstart runs/words   several models to choose from
"""

import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kws_s5.cli import guarded
from kws_s5.errors import UserError

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]

DESCRIPTION = """A page to try a model in: microphone, recordings, and what happens at other sample rates.
It can be reached from this computer only, unless --host says otherwise, and fetches nothing from the network.
Needs the extra: pip install 'kws-s5[demo]'. Ctrl-C stops."""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    models: tyro.conf.Positional[tuple[str, ...]] = ()
    """Run folders, model files or names of shipped models. Default: the shipped one."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0: all. Browsers open the microphone only for localhost or over https."""
    port: int = 7860
    """Port; 0: any free one."""
    seconds: float = 60.0
    """Longest recording in seconds."""
    megabytes: float = 20.0
    """Largest upload in megabytes."""
    browser: Flag = False
    """Open the page in the browser."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0; 2 for a mistake; 130 after Ctrl-C."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-demo", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    if not 0 <= arguments.port <= 65535 or not 0 < arguments.seconds <= 3600 or not 0 < arguments.megabytes <= 1000:
        raise UserError("--port must be 0 to 65535, --seconds 0 to 3600, --megabytes 0 to 1000")
    models = named_models(arguments.models)
    print("getting ready ...", file=sys.stderr, flush=True)
    try:
        from kws_s5.demo.app import Limits
        from kws_s5.demo.serve import serving
    except ImportError as error:
        raise UserError(f"the demo needs gradio ({error}): pip install 'kws-s5[demo]'") from error
    limits = Limits(seconds=arguments.seconds, megabytes=arguments.megabytes)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the temporary folder goes then too
    with serving(models, host=arguments.host, port=arguments.port, limits=limits) as url:
        print(f"{', '.join(models)} at {url}   (Ctrl-C stops)", file=sys.stderr, flush=True)
        if arguments.browser:
            import webbrowser

            webbrowser.open(url)
        threading.Event().wait()


def named_models(given: Sequence[str]) -> dict:
    """Name that visitors see -> loaded model. Names hold no folders. Raises UserError for models that cannot listen."""
    from kws_s5.bundle import MODEL_FILE, load
    from kws_s5.listening.scan_cli import default_model
    from kws_s5.listening.spotter import KeywordSpotter

    models = {}
    for source in given or (default_model(),):
        bundle = load(source)
        KeywordSpotter(bundle, bundle.rate or None)  # mistakes show before the page does
        path = Path(source).resolve()
        base = path.parent.name if path.name == MODEL_FILE else path.stem if path.is_file() else path.name
        name, n = base, 2
        while name in models:
            name, n = f"{base} ({n})", n + 1
        models[name] = bundle
    return models
