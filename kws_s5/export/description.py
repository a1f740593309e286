"""What an exported model says about itself, as JSON in the metadata of its file: enough to listen with it."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kws_s5.errors import UserError

KEY = "kws_s5"
FORMAT = 1
Kind = Literal["float32", "int8", "int7", "int6", "int5", "int4"]  # how matrices are stored
NUMBER = (int, float)
MOST = 1e6  # of rates and seconds


@dataclass(frozen=True)
class Description:
    """Plain values. Rates in Hz."""

    kind: str  # step, clip
    labels: tuple[str, ...]
    rate: float  # of training
    frame_rate: float
    lowest: float  # rate that the model can hear
    fixed_rate: float = 0.0  # the only one; 0: any
    seconds: float = 0.0  # of a training clip
    thresholds: dict[str, float] = field(default_factory=dict)
    weights: Kind = "float32"
    note: str = ""
    version: str = ""  # of the library that wrote it
    format: int = FORMAT


TYPES = {
    "kind": str,
    "labels": list,
    "rate": NUMBER,
    "frame_rate": NUMBER,
    "lowest": NUMBER,
    "fixed_rate": NUMBER,
    "seconds": NUMBER,
    "thresholds": dict,
    "weights": str,
    "note": str,
    "version": str,
    "format": int,
}


def plain(description: Description) -> dict[str, Any]:
    """JSON values."""
    return asdict(description) | {"labels": list(description.labels)}


def described(value: Any) -> Description:
    """JSON values -> a Description. Raises UserError for what is missing, of a wrong type, or of a newer format."""
    number = value.get("format") if isinstance(value, dict) else None
    if type(number) is not int or number < 1:
        raise UserError("no format number")
    if number > FORMAT:
        raise UserError(f"made by a newer kws_s5, format {number}; pip install --upgrade kws-s5")
    for name, kind in TYPES.items():
        if not isinstance(value.get(name), kind) or isinstance(value[name], bool):
            raise UserError(f"{name} is missing or has the wrong type")
    for name, kind in TYPES.items():
        if kind is NUMBER and not 0 <= value[name] <= MOST:
            raise UserError(f"{name} makes no sense")
    if not (value["frame_rate"] >= 1e-3 and value["rate"] > 0 and value["kind"] in ("step", "clip")):
        raise UserError("rate, frame_rate or kind make no sense")
    labels = value["labels"]
    if not all(isinstance(label, str) and label.isprintable() for label in labels) or len(set(labels)) < len(labels):
        raise UserError("labels make no sense")
    return Description(**{name: value[name] for name in TYPES} | {"labels": tuple(value["labels"])})
