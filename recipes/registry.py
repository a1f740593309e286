"""All recipes by name: every public function of the files below that takes nothing and returns a RunConfig.

``def flat_small() -> RunConfig`` in one of them is ``kws-train flat-small``; its docstring's first line is the help.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from kws_s5.config import RunConfig

ROOMS = ("kws", "pendulum", "series", "lra")


def recipes_of(room: str) -> dict[str, Callable[[], RunConfig]]:
    """The recipes of one file of this folder, in the order they stand there; none if there is no such file."""
    name = f"kws_s5.recipes.{room}"
    if find_spec(name) is None:
        return {}
    found = inspect.getmembers(import_module(name), inspect.isfunction)
    own = [f for _, f in found if f.__module__ == name and not f.__name__.startswith("_") and _is_recipe(f)]
    return {f.__name__.replace("_", "-"): f for f in sorted(own, key=lambda f: f.__code__.co_firstlineno)}


def help_line(recipe: Callable[[], RunConfig]) -> str:
    """The first line of a recipe's docstring."""
    return (recipe.__doc__ or "").strip().splitlines()[0]


def _is_recipe(function: Callable) -> bool:
    signature = inspect.signature(function)
    return not signature.parameters and signature.return_annotation is RunConfig


RECIPES: dict[str, Callable[[], RunConfig]] = {name: f for room in ROOMS for name, f in recipes_of(room).items()}
