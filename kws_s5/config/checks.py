"""Checks used by the config classes: errors name the field, its value and what is allowed."""

import dataclasses
import math
from typing import Any, get_args

from kws_s5.errors import UserError


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raises UserError naming ``field`` unless ``condition`` holds."""
    if not condition:
        raise UserError(f"{field} = {value!r}: must be {allowed}")


def one_of(field: str, value: Any, literal: Any) -> None:
    """``value`` must be one of the values of the Literal type."""
    allowed = get_args(literal)
    require(value in allowed, field, value, "one of " + ", ".join(map(str, allowed)))


def finite(config: Any, where: str = "") -> None:
    """Every number in a config, its parts and tuples must be finite: nothing else is meant, and JSON has no NaN."""
    if dataclasses.is_dataclass(config):
        for field in dataclasses.fields(config):
            finite(getattr(config, field.name), f"{where}.{field.name}" if where else field.name)
    elif isinstance(config, tuple):
        for value in config:
            finite(value, where)
    elif isinstance(config, float):
        require(math.isfinite(config), where, config, "a finite number")
