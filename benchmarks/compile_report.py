"""Compiles every GPU kernel of the scan for one processor, without a GPU, and writes down what it occupies.

    python -m benchmarks.compile_report [--arch 90] [--out docs/triton_sm90.md]

The scan runs on tensors without memory; each launch is caught and its kernel compiled exactly as that launch asks for:
the speech model's shapes, with constant, per-clip and per-step factors, one direction and both, float32 and float64.
Spills (registers moved to local memory) mean that a chunk is too long for a thread: shorten STEPS in triton_launch.py.
"""

import argparse
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kws_s5.atomic import write_text
from kws_s5.ops.scan import triton_kernels, triton_launch

WARPS = 4
N, L, P = 16, 16000, 64  # the speech model at batch 16
TYPES = {torch.float32: "*fp32", torch.float64: "*fp64"}
FACTORS = {"constant": (2 * P,), "per clip": (N, 2 * P), "per step": (N, L, 2 * P)}
PROSE = """# GPU kernels of the scan, compiled for sm_{arch}

Written by `python -m benchmarks.compile_report` with Triton {triton}, {warps} warps a program. No GPU took part: this
is what the compiler made of the kernels, not how fast they run. One thread holds one mode of one chunk of T steps.

- directions: of the scan; the kernels of its gradient (adjoint, and the shorter T before it) run the other way.
- regs: registers a thread (at most 255); threads: how many fit on a multiprocessor at once (of 2,048).
- spills: loads and stores of local memory in the machine code; stack and shared: bytes.
- loads: global loads of one thread, all of them independent of the recurrence.
- variant: "Bu read once" scans the same numbers both ways (steps); the others also scan the chunks' ends, with numbers
  of their own for each direction.

"""
HEAD = ["kernel", "factor", "directions", "variant", "type", "T"]
HEAD += ["regs", "threads", "spills", "stack", "shared", "loads"]


@dataclass(frozen=True)
class Launch:
    """One launch of the scan: what Triton specialises a kernel on, and the case it came from."""

    kernel: str
    case: tuple[str, str]  # factor, directions
    values: dict[str, Any]  # by argument name

    def specialization(self) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int], list]]:
        """Signature, constants and divisible arguments, as Triton's launcher derives them."""
        function = getattr(triton_kernels, self.kernel)
        signature, constants, divisible = {}, {}, {}
        for param in function.params:
            value, free = self.values[param.name], param.name in triton_kernels.SIZES
            if isinstance(value, torch.Tensor):
                signature[param.name] = TYPES[value.dtype]
                divisible[(param.num,)] = [["tt.divisibility", 16]]
            elif param.is_constexpr or value is None or (value == 1 and not free):
                signature[param.name], constants[param.name] = "constexpr", value
            else:
                signature[param.name] = "i32"
                if value % 16 == 0 and not free:
                    divisible[(param.num,)] = [["tt.divisibility", 16]]
        return signature, constants, divisible

    def variant(self) -> str:
        """What else sets the kernel apart."""
        started = isinstance(self.values.get("initial_ptr"), torch.Tensor)
        return "Bu read once" if self.values.get("SHARED") else "from a state" if started else ""

    def title(self) -> list[Any]:
        """The first columns of the table."""
        kind = {"*fp32": "float32", "*fp64": "float64"}[self.specialization()[0]["a_ptr"]]
        return [self.kernel, *self.case, self.variant(), kind, self.values["T"]]


def launches() -> Iterator[Launch]:
    """Every kernel variant that the model's cases launch, once."""
    seen = set()
    cases = itertools.product(TYPES, FACTORS, ["forward", "backward", "both"])
    for dtype, factor, direction in cases:
        if dtype == torch.float64 and direction != "both":
            continue  # the widest type with the fullest kernel will do
        for launch in caught(dtype, factor, direction):
            key = (launch.kernel, str(launch.specialization()))
            if key not in seen:
                seen.add(key)
                yield launch


def caught(dtype: torch.dtype, factor: str, direction: str) -> list[Launch]:
    """Launches of one scan and its gradient on tensors without memory."""
    launches: list[Launch] = []

    class Catch:
        def __init__(self, name: str) -> None:
            self.name, self.names = name, getattr(triton_kernels, name).arg_names

        def __getitem__(self, grid):
            return lambda *args, **options: launches.append(
                Launch(self.name, (factor, direction), dict(zip(self.names, args, strict=False)) | options)
            )

    shapes = FACTORS[factor], (N, L, 2 * P), (N, 2 * P)
    a, Bu, initial = (torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
    initial = initial if direction == "forward" else None
    kernels = {name: Catch(name) for name in ("summarize", "rescan", "adjoint")}
    with patch.multiple(triton_kernels, **kernels):
        xs = triton_launch.forward(a, Bu, initial, direction)
        triton_launch.adjoint(a, xs, initial, xs, direction, True)
    return launches


def resources(launch: Launch, arch: int) -> list[int]:
    """Registers, resident threads, spills, stack, shared memory, global loads."""
    signature, constants, divisible = launch.specialization()
    source = ASTSource(getattr(triton_kernels, launch.kernel), signature, constants, divisible)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS})
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(compiled.asm["cubin"])

        def run(option: str) -> str:
            return subprocess.run([tool, option, file], check=True, capture_output=True, text=True).stdout

        usage, code = run("-res-usage"), run("-sass")
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage).group(1)) for name in ("REG", "STACK"))
    per_program = -(-registers // 8) * 8 * 32 * WARPS  # registers are given out by eights
    threads = min(65536 // per_program * 32 * WARPS, 2048)
    spills = len(re.findall(r"\b(?:LDL|STL)\b", code))
    return [registers, threads, spills, stack, compiled.metadata.shared, len(re.findall(r"\bLDG\b", code))]


def table(rows: list[list[Any]], arch: int) -> str:
    """The report, in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    body = "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
    return PROSE.format(arch=arch, triton=triton.__version__, warps=WARPS) + body + "\n"


def main(argv: list[str] | None = None) -> int:
    """Compile, print and write the table; 1 if any kernel spills."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", type=int, default=90, help="compute capability without its point: 80, 90, ...")
    parser.add_argument("--out", type=Path, default=None, help="file to write (default: docs/triton_sm<arch>.md)")
    arguments = parser.parse_args(argv)
    rows = [launch.title() + resources(launch, arguments.arch) for launch in launches()]
    text = table(rows, arguments.arch)
    print(text)
    write_text(arguments.out or Path(f"docs/triton_sm{arguments.arch}.md"), text)
    return int(any(row[HEAD.index("spills")] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
