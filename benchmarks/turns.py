"""Contestants take turns: every one once a round, in an order that rotates, so that no place in it is anyone's.

Medians of wall time and of processor time (all threads of this process). On a busy machine wall time grows with what
others do; processor time tells how much work it was.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Spent(NamedTuple):
    """Seconds of a call, or medians of several."""

    wall: float
    processor: float


def spent(function: Callable, *args: object) -> Spent:
    """Of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    function(*args)
    return Spent(time.perf_counter() - wall, time.process_time() - processor)


def order(names: Sequence[str], round_: int) -> list[str]:
    """Of a round: rotated by one each time, and every second round backwards, so that neighbours change too."""
    first = round_ % len(names) if names else 0
    rotated = [*names[first:], *names[:first]]
    return rotated[::-1] if round_ % 2 else rotated


def take_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, Spent]:
    """Medians of each work over the rounds. Whatever has to be compiled was run before."""
    times: dict[str, list[Spent]] = {name: [] for name in works}
    for k in range(rounds):
        for name in order(list(works), k):
            print(f"\rround {k + 1}/{rounds}: {name:60s}", end="", file=sys.stderr, flush=True)
            times[name].append(spent(works[name]))
    print(file=sys.stderr)
    return {name: Spent(*map(statistics.median, zip(*found, strict=True))) for name, found in times.items()}
