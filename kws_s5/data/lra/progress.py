"""A bar on stderr while data is prepared; silent where stderr is no terminal or the work is short."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")
SHORT = 500  # items


def with_progress(items: Iterable[Item], text: str, total: int) -> Iterator[Item]:
    """The items, counted on a bar; ``total`` is how many there are."""
    console = Console(stderr=True)
    yield from track(items, text, total, console=console, disable=total < SHORT or not console.is_terminal)
