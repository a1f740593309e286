"""A list of steps for the compiled loop over tiles (kernel.py): written once for a shape, run on many tensors.

    program = Program(Memory(Shape(N, L, threads)))
    u = program.memory.scratch("u", H)
    program.add(AFFINE, H, u, program.rows("x", H), ..., part=VALID)
    program.run({"x": x, ...}, backward=False, lengths=None)

A tile is a stretch of one clip, short enough that scratch memory stays in the processor's cache. Every item, that is
some clips or a stretch of one, has scratch memory and sums of its own, so that results depend on the number of threads
but never on which of them was quicker.

Legend: N clips of L steps; a row is one step of one clip, counted through the batch; n tiles of a clip.
"""

import threading
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kws_s5.ops.common.threads import run_parallel
from kws_s5.ops.layer import kernel
from kws_s5.ops.layer.half_products import work_size

ROWS = 128  # of a tile at most: fewer, and steps cost more than they do; more, and they leave the cache
FILL, ALIGN = 32, 64  # numbers to which rows of scratch memory are filled up; bytes between areas
SIZE = 4  # bytes of a number
LAYOUTS = 16  # of scratch memory that a thread keeps
Products = Literal["full", "half"]
_local = threading.local()


@dataclass(frozen=True)
class Shape:
    """Of a batch: N clips of L rows each, for that many threads."""

    N: int
    L: int
    threads: int

    @property
    def n_tiles(self) -> int:
        """Of a clip."""
        return -(-self.L // ROWS)

    @property
    def rows(self) -> int:
        """Of the longest tile, filled up to whole blocks."""
        return filled(-(-self.L // self.n_tiles))

    @property
    def items(self) -> np.ndarray:
        """(n_items, 4): first and last clip, first and last tile; as many as there are threads."""
        n = min(self.N, self.threads)
        edges = [round(i * self.N / n) for i in range(n + 1)]
        return np.array([[a, b, 0, self.n_tiles] for a, b in zip(edges, edges[1:], strict=False)], np.int64)


@dataclass(frozen=True)
class Operand:
    """Memory of a step: where tensor ``name`` (or scratch memory, at ``offset``) lies for a tile; bytes by which it
    moves with every row, tile, clip and item before that; bytes from row to row."""

    name: str
    by_row: int = 0
    by_tile: int = 0
    by_clip: int = 0
    by_item: int = 0
    stride: int = 0
    offset: int = 0


class Memory:
    """Scratch memory of an item, which several programs share."""

    def __init__(self, shape: Shape, products: Products = "full") -> None:
        """products: in float32, or of bfloat16 operands (half_products.py)."""
        self.shape, self.products, self.items = shape, products, shape.items
        self.areas: dict[str, Operand] = {}
        self.size = kernel.HEADER  # bytes

    def scratch(self, name: str, width: int) -> Operand:
        """Rows of ``width`` numbers, filled up with zeros that stay; the same again for the same name."""
        if name not in self.areas:
            self.areas[name] = Operand("scratch", stride=filled(width) * SIZE, offset=self.size)
            self.size += self.shape.rows * filled(width) * SIZE
            self.size += -self.size % ALIGN
        return self.areas[name]

    def work(self, *widths: int) -> Operand:
        """Scratch memory of a bfloat16 product; without, the zeros that a product adds."""
        if self.products == "full":
            return Operand("zeros")
        needed = work_size(self.shape.rows, max(widths))
        return self.scratch("work", -(-needed // (self.shape.rows * SIZE)))

    def tensor(self) -> Tensor:
        """This thread's memory for this layout. Zeros at first: what fills up rows stays so."""
        kept = _local.__dict__
        known = kept.get(id(self))
        if known is None or known[0] is not self or len(known[1]) * SIZE < self.size * len(self.items):
            with torch.inference_mode(False):
                memory = torch.zeros((self.size * len(self.items) + ALIGN) // SIZE)
            skipped = -memory.data_ptr() % ALIGN // SIZE
            if len(kept) >= LAYOUTS:
                kept.clear()
            kept[id(self)] = known = self, memory[skipped:]
        return known[1]


class Program:
    """Steps on tensors and on scratch memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._steps: list[tuple[tuple[int, ...], tuple[Operand, ...]]] = []
        self._ready: tuple | None = None

    def rows(self, name: str, width: int) -> Operand:
        """Rows (N L, width) of the batch."""
        return Operand(name, by_row=width * SIZE, stride=width * SIZE)

    def row(self, name: str) -> Operand:
        """One row of numbers for all."""
        return Operand(name)

    def clips(self, name: str, width: int) -> Operand:
        """One row for each clip, (N, width)."""
        return Operand(name, by_clip=width * SIZE)

    def tiles(self, name: str, width: int) -> Operand:
        """One row for each tile of each clip, (N n, width)."""
        return Operand(name, by_tile=width * SIZE)

    def sums(self, name: str, width: int, height: int = 1, *, size: int = SIZE) -> Operand:
        """(height, width) numbers of ``size`` bytes for each item."""
        return Operand(name, by_item=height * width * size, stride=width * size)

    def add(
        self, operation: int, size: int, *operands: Operand, numbers: tuple[int, int] = (0, 0), part: int = kernel.ALL
    ) -> None:
        """The next step."""
        assert len(operands) <= kernel.MOST and self._ready is None
        self._steps.append(((operation, part, size, *numbers, len(operands)), operands))

    def run(self, places: dict[str, Tensor | None], *, backward: bool = False, lengths: Tensor | None = None) -> None:
        """All steps on all tiles, in the order of time or against it. places: the tensors of every name."""
        table, names, chosen, slots, offsets = self._compiled()
        memory, scratch = self.memory, self.memory.tensor()
        known = {"scratch": scratch, **places}
        addresses = np.array([known[name].data_ptr() for name in names], np.int64)
        steps = table.copy()
        steps[slots] = addresses[chosen] + offsets
        items, shape = memory.items, memory.shape
        job = np.array(
            [
                0,
                len(items),
                shape.L,
                shape.n_tiles,
                0 if lengths is None else lengths.data_ptr(),
                backward,
                len(self._steps),
                items.ctypes.data,
                steps.ctypes.data,
                scratch.data_ptr(),
                memory.size,
            ],
            np.int64,
        )
        run_parallel(kernel.compiled(memory.products == "half"), job, len(items))

    def _compiled(self) -> tuple:
        """Steps as numbers, the names of tensors, and at which numbers which of their addresses goes."""
        if self._ready is None:
            table = np.zeros(len(self._steps) * kernel.STEP, np.int64)
            names, chosen, slots, offsets = [], [], [], []
            for i, (header, operands) in enumerate(self._steps):
                at = i * kernel.STEP
                table[at : at + len(header)] = header
                for k, o in enumerate(operands):
                    slot = at + kernel.OPERANDS + kernel.OPERAND * k
                    by_item = self.memory.size if o.name == "scratch" else o.by_item
                    table[slot : slot + kernel.OPERAND] = 0, o.by_row, o.by_tile, o.by_clip, by_item, o.stride
                    names += [] if o.name in names else [o.name]
                    chosen.append(names.index(o.name))
                    slots.append(slot)
                    offsets.append(o.offset)
            self._ready = table, names, np.array(chosen), np.array(slots), np.array(offsets, np.int64)
        return self._ready


def filled(n: int) -> int:
    """n, filled up to a whole block."""
    return -(-n // FILL) * FILL
