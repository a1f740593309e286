"""Times of GPU work: medians of interleaved runs, by the device's own clock; CUDA graphs; peak memory."""

import time
from collections.abc import Callable
from statistics import median

import torch

Work = Callable[[], object]


def measure(works: dict[str, Work], device: str, rounds: int) -> dict[str, float]:
    """Median seconds of each work; one after the other in every round, so that all meet the same weather."""
    for work in works.values():
        for _ in range(3 if device == "cuda" else 1):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(_seconds(work, device))
    return {name: median(values) for name, values in times.items()}


def _seconds(work: Work, device: str) -> float:
    if device != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def graphed(work: Work, device: str) -> Work:
    """The same work replayed as one CUDA graph; on a CPU the work itself."""
    if device != "cuda":
        return work
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def peak_GB(work: Work, device: str) -> float:
    """Most memory allocated while the work runs once, above what was there before; 0 on a CPU."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e9


def reason(error: Exception) -> str:
    """One line that says what went wrong, for a table's cell."""
    text = (str(error).strip() or "no reason given").splitlines()[0]
    return f"{type(error).__name__}: {text}"[:120].replace("|", "/")
