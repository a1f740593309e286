"""A whole run in one frozen value, and its JSON form. Reading is strict: unknown keys and wrong types are errors."""

import dataclasses
import types
import typing
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from kws_s5.config.checks import finite
from kws_s5.config.data import AugmentConfig, Data, KeywordData
from kws_s5.config.model import ModelConfig
from kws_s5.config.older import todays_model
from kws_s5.config.training import OptimConfig, TrainingConfig
from kws_s5.errors import UserError

RENAMED = {("KeywordData", "testing_percent"): "test_percent"}  # (class, name in older files): name now


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run. Recipes are functions that return one."""

    name: str = "run"
    data: Data = field(default_factory=KeywordData)
    model: ModelConfig = field(default_factory=ModelConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        finite(self)


def to_dict(config: Any) -> Any:
    """Config -> plain JSON values; every dataclass carries its class name under "kind"."""
    if dataclasses.is_dataclass(config):
        fields = {f.name: to_dict(getattr(config, f.name)) for f in dataclasses.fields(config)}
        return {"kind": type(config).__name__, **fields}
    if isinstance(config, tuple):
        return [to_dict(value) for value in config]
    return config


def differences(old: Any, new: Any, where: str = "", *, free: Collection[str] = ()) -> Iterator[tuple[str, Any, Any]]:
    """(name, old, new) of everything that differs between two results of ``to_dict``, except the names in ``free``."""
    if isinstance(old, dict) and isinstance(new, dict):
        other_kind = old.get("kind") != new.get("kind")  # the fields of different classes have nothing in common
        for key in ("kind",) if other_kind else sorted(old.keys() | new.keys()):
            name = f"{where}.{key}" if where else key
            if name not in free:
                yield from differences(old.get(key), new.get(key), name, free=free)
    elif old != new:
        yield where, old, new


def from_dict(cls: type, value: Any, where: str = "config") -> Any:
    """Plain JSON values -> a config of type ``cls``. Raises UserError naming the offending key."""
    if typing.get_origin(cls) in (typing.Union, types.UnionType):
        return _from_union(cls, value, where)
    if dataclasses.is_dataclass(cls):
        return _from_mapping(cls, value, where)
    return _from_plain(cls, value, where)


def _from_union(cls: Any, value: Any, where: str) -> Any:
    members = {member.__name__: member for member in typing.get_args(cls)}
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in members:
        raise UserError(f"{where}.kind = {kind!r}: must be one of {', '.join(members)}")
    return from_dict(members[kind], value, where)


def _from_mapping(cls: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected the fields of {cls.__name__}, got {type(value).__name__}")
    if value.get("kind", cls.__name__) != cls.__name__:
        raise UserError(f"{where}.kind = {value['kind']!r}: must be {cls.__name__}")
    value = {RENAMED.get((cls.__name__, name), name): v for name, v in value.items()}
    value = todays_model(value) if cls is ModelConfig else value
    hints = typing.get_type_hints(cls)
    unknown = set(value) - set(hints) - {"kind"}
    if unknown:
        raise UserError(f"{where}: unknown key {sorted(unknown)[0]!r} (made by a newer version?)")
    fields = {name: from_dict(hints[name], v, f"{where}.{name}") for name, v in value.items() if name != "kind"}
    return cls(**fields)


def _from_plain(cls: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(cls)
    if origin is tuple:
        if not isinstance(value, list):
            raise UserError(f"{where}: expected a list, got {value!r}")
        inner = typing.get_args(cls)
        types_ = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(types_) != len(value):
            raise UserError(f"{where}: expected {len(types_)} values, got {len(value)}")
        return tuple(from_dict(t, v, f"{where}[{i}]") for i, (t, v) in enumerate(zip(types_, value, strict=True)))
    if origin is typing.Literal:
        if value not in typing.get_args(cls):
            raise UserError(f"{where} = {value!r}: must be one of {', '.join(map(str, typing.get_args(cls)))}")
        return value
    if cls is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not cls:
        raise UserError(f"{where} = {value!r}: expected {cls.__name__}")
    return value
