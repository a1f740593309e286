"""kws_s5: keyword spotting on raw waveforms with S5, at any sample rate."""

from typing import Any

__version__ = "0.1.0"
_DOORS = {
    "load": "kws_s5.bundle",
    "Bundle": "kws_s5.bundle",
    "KeywordSpotter": "kws_s5.listening.spotter",
    "load_audio": "kws_s5.audio.files",
}
__all__ = ["Bundle", "KeywordSpotter", "__version__", "load", "load_audio"]


def __getattr__(name: str) -> Any:
    """Loads the public names when first used: importing kws_s5 stays quick and imports nothing heavy."""
    if name in _DOORS:
        from importlib import import_module

        try:
            return getattr(import_module(_DOORS[name]), name)
        except ModuleNotFoundError as error:
            from kws_s5.cli import TORCH, without_torch

            if error.name not in TORCH:
                raise
            raise ImportError(without_torch(error)) from error
    raise AttributeError(f"module 'kws_s5' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
