"""kws-export MODEL: a trained model as ONNX files that run without torch.

kws-export commands12                              commands12.onnx and commands12-clip.onnx, any sample rate
kws-export runs/words --rate 16000 --weights int6  one rate only, a quarter of the size
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from kws_s5.audio.samples import shown
from kws_s5.cli import guarded
from kws_s5.errors import UserError
from kws_s5.export.description import Kind

DESCRIPTION = """A trained model as ONNX files: the streaming step (NAME.onnx) and the model of clips (NAME-clip.onnx).

They run in onnxruntime, in any language, without torch:
  kws-export commands12 --out exported
  kws-scan meeting.wav --model exported/commands12.onnx

Both are compared with torch before they are written. Inputs, states and a plain numpy version: docs/porting.md.

With --to c the step becomes C99 source without allocation, for microcontrollers: kws_model.h/.c, kws_step.h/.c.
  kws-export commands12 --to c --rate 16000 --weights int8 --out firmware

With --to web it becomes a static page that listens in the browser without any server: open index.html.
  kws-export commands12 --to web --weights int8 --out page"""


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    model: tyro.conf.Positional[str]
    """A run folder, a model file, or the name of a shipped model."""
    to: Literal["onnx", "c", "web"] = "onnx"
    """onnx; c: C99 source for one --rate; web: a static page that listens. c and web take float32 or int8 weights."""
    out: Path = Path(".")
    """Folder for the files."""
    name: str = ""
    """Their name. Default: the model's."""
    rate: float | None = None
    """Hz: fix the sample rate; smaller, and quicker on short chunks. Default: the rate is an input."""
    weights: Kind = "float32"
    """How the matrices are stored: 8 bits change next to no decision, 6 bits few (docs/porting.md has figures)."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Exit status 0, or 2 after a mistake."""
    arguments = tyro.cli(Arguments, args=argv, prog="kws-export", description=DESCRIPTION)
    return guarded(lambda: _run(arguments))


def _run(arguments: Arguments) -> None:
    if arguments.to == "c":
        _write_c(arguments)
        return
    if arguments.to == "web":
        _write_page(arguments)
        return
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise UserError(f"kws-export needs onnx and onnxruntime ({error}): pip install 'kws-s5[export]'") from None
    from kws_s5.bundle import find, load
    from kws_s5.export.export import export

    path = find(arguments.model).absolute()
    name = arguments.name or (path.parent.name if path.stem == "model" else path.stem)
    if not name or Path(name).name != name or not name.isprintable():
        raise UserError(f"--name {shown(name)}: must be the name of a file, without a folder; --out is the folder")
    for file in export(load(path), name, arguments.out, rate=arguments.rate, weights=arguments.weights):
        print(
            f"{file.path}  {file.kind}  {file.size:,} bytes  largest difference from torch's logits "
            f"{file.difference:.1e}"
        )


def _write_c(arguments: Arguments) -> None:
    from kws_s5.bundle import load
    from kws_s5.export.c_source import write_c

    bundle = load(arguments.model)
    rate = arguments.rate or bundle.rate
    for path in write_c(bundle, arguments.out, rate=rate, weights=arguments.weights):
        print(f"{path}  {path.stat().st_size:,} bytes")
    print(f"one sample rate: {rate:g} Hz; kws_step.h says how to call it, docs/porting.md what it costs")


def _write_page(arguments: Arguments) -> None:
    from dataclasses import asdict

    from kws_s5.bundle import load
    from kws_s5.config.spotter import SpotterConfig
    from kws_s5.export.web_page import write_page

    if arguments.rate is not None:
        raise UserError("--rate: a web page listens at every rate that microphones have")
    for path in write_page(
        load(arguments.model), arguments.out, weights=arguments.weights, events=asdict(SpotterConfig())
    ):
        print(f"{path}  {path.stat().st_size:,} bytes")
    print("open index.html in a browser, or serve the folder: python -m http.server")
