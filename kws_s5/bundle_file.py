"""The bytes of a model file: safetensors with one JSON description in its header; proved sound, then used.

    uint64 n | n bytes of JSON header: {"__metadata__": {"kws_s5": description}, tensor: {dtype, shape, offsets}} | data
The description holds the format number and a SHA-256 of itself and all tensors. Memory is bounded by the file's size.
"""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from kws_s5.atomic import replacing
from kws_s5.errors import UserError

FORMAT = 1
KEY = "kws_s5"
HEADER_LIMIT = 8 << 20  # bytes; a model with 35 labels needs some 20 kB
FIELDS: dict[str, type | tuple[type, ...]] = {
    "version": str,
    "config": dict,
    "labels": list,
    "vocabulary": list,
    "rate": (int, float),
    "thresholds": dict,
    "note": str,
    "metrics": dict,
}
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def write(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Saves the tensors and the description (plain JSON values) atomically."""
    stored = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    described = {"format": FORMAT, **description}
    described["sha256"] = _digest(stored, described)
    text = json.dumps(described, ensure_ascii=False, allow_nan=False)
    content = save(stored, metadata={KEY: text})  # one metadata entry: safetensors writes several in random order
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a model file; UserError in one line for anything that is not one."""
    path = Path(path)
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            description = _description(path, (file.metadata() or {}).get(KEY))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise UserError(f"{path}: damaged or truncated model file ({error})") from None
    if description.pop("sha256", None) != _digest(tensors, description):
        raise UserError(f"{path}: the contents do not match their checksum; the file was damaged or altered")
    for name, value in tensors.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise UserError(f"{path}: tensor {name} contains NaN or infinity; the training that made it diverged")
    return tensors, description


def _check_header(path: Path) -> None:
    """Size, kind and header length, from the first bytes alone."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if start.startswith(PICKLES):
        raise UserError(
            f"{path}: a pickle or PyTorch checkpoint, which could run code; nothing was loaded. "
            "Model files end in .safetensors"
        )
    if size < 8:
        raise UserError(f"{path}: {size} bytes; not a model file")
    (header,) = struct.unpack("<Q", start)
    if header > size - 8:
        raise UserError(f"{path}: not a model file, or a truncated one (header of {header} bytes, file of {size})")
    if header > HEADER_LIMIT:
        raise UserError(f"{path}: header of {header} bytes; model files have less than {HEADER_LIMIT}")


def _description(path: Path, text: str | None) -> dict[str, Any]:
    """The parsed and typed description; the format number is looked at first, so that newer files are told apart."""
    if text is None:
        raise UserError(f"{path}: a safetensors file, but not of kws_s5 (no {KEY} entry in its header)")
    try:
        description = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: its description is not valid JSON; the file is damaged") from None
    number = description.get("format") if isinstance(description, dict) else None
    if type(number) is not int or number < 1:
        raise UserError(f"{path}: no format number; the file is damaged")
    if number > FORMAT:
        raise UserError(
            f"{path}: made by a newer kws_s5 (format {number}, this one reads {FORMAT}); pip install --upgrade kws-s5"
        )
    for name, kind in FIELDS.items():
        if not isinstance(description.get(name), kind):
            raise UserError(f"{path}: {name} is missing from its description or has the wrong type")
    return description


def _digest(tensors: dict[str, Tensor], description: dict[str, Any]) -> str:
    """SHA-256 over the description (sorted JSON) and name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True, ensure_ascii=False).encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(constant)
