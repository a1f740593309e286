"""One door to all data: each kind of config has its reader."""

import importlib
from typing import get_args

import pytest

from kws_s5.config import Data
from kws_s5.data import build as door


def test_every_kind_of_data_has_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for name in ("keywords.reader", "pendulum.reader", "series.reader", "lra"):
        reader = importlib.import_module(f"kws_s5.data.{name}")
        monkeypatch.setattr(reader, "build", lambda config: called.append(type(config)))
    for kind in get_args(Data):
        door.build(kind())
    assert tuple(called) == get_args(Data)


def test_anything_else_is_a_programmers_mistake() -> None:
    with pytest.raises(TypeError, match="str"):
        door.build("words")
