"""ONNX graphs written as expressions: a Value stands for a tensor of the graph, operators on it become nodes.

    g = Graph()
    x = g.input("x", "float32", ["N", 4])
    g.output("y", g.op("Exp", x) * 2.0 + g.constant(table), ["N", 4])
    model = g.model("name", metadata={})

Numbers and arrays beside a Value become constants of its type. Nodes go into the innermost open scope (the body of a
Scan, the branch of an If), which sees everything around it. complex_values.py makes complex tensors of two real ones.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from string import ascii_letters
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

OPSET = 18  # the first with BitwiseAnd; understood by onnxruntime since 1.14
IR_VERSION = 8
TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}
TRUTHS = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"}
Shape = Sequence[int | str]


def _operator(kind: str, *, swapped: bool = False) -> Any:
    """The method that writes the node ``kind``."""

    def method(self: "Value", other: Any) -> "Value":
        if not isinstance(other, (Value, np.ndarray, np.generic, float, int)):
            return NotImplemented
        return self.graph.op(kind, *((other, self) if swapped else (self, other)))

    return method


class Value:
    """A tensor of a graph: its name and type."""

    __array_ufunc__ = None  # numpy arrays leave mixed expressions to us

    def __init__(self, graph: "Graph", name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    __add__, __radd__ = _operator("Add"), _operator("Add", swapped=True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swapped=True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", swapped=True)
    __pow__, __matmul__ = _operator("Pow"), _operator("MatMul")
    __lt__, __le__, __gt__ = _operator("Less"), _operator("LessOrEqual"), _operator("Greater")

    def __neg__(self) -> "Value":
        return self.graph.op("Neg", self)

    def to(self, dtype: str) -> "Value":
        """The same numbers in another type."""
        return self if dtype == self.dtype else self.graph.op("Cast", self, to=TYPES[dtype], dtype=dtype)

    def reshape(self, *shape: "int | Value") -> "Value":
        """0 keeps a size, -1 is what is left; sizes may be Values (int64, of shape (1,))."""
        if all(isinstance(size, int) for size in shape):
            return self.graph.op("Reshape", self, np.array(shape, np.int64))
        return self.graph.op("Reshape", self, self.graph.concat([self.graph.sizes(s) for s in shape], 0))

    def transpose(self, *axes: int) -> "Value":
        """Axes in this order."""
        return self.graph.op("Transpose", self, perm=list(axes))

    def take(self, index: Any, axis: int) -> "Value":
        """Entries at ``index`` (int64 of any shape, whose axes take the place of ``axis``)."""
        return self.graph.op("Gather", self, _int64(index), axis=axis)

    def part(self, start: Any, end: Any, axis: int) -> "Value":
        """Entries start to end; numbers or Values of shape (1,); None: to the last."""
        end = np.iinfo(np.int64).max if end is None else end
        return self.graph.op("Slice", self, self.graph.sizes(start), self.graph.sizes(end), np.array([axis]))

    def size(self, axis: int) -> "Value":
        """(1,) int64."""
        return self.graph.op("Shape", self, start=axis, end=axis + 1, dtype="int64")

    def sum(self, axis: int, *, keep: bool = False) -> "Value":
        """Sum over one axis."""
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keep))


class Graph:
    """Nodes in the making."""

    def __init__(self) -> None:
        self._scopes: list[list] = [[]]
        self._constants: dict[tuple, TensorProto] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._count = 0

    def op(
        self, kind: str, *inputs: Any, n: int = 1, dtype: str = "", output: Value | None = None, **attributes: Any
    ) -> Any:
        """One node -> its output, or a tuple of n. ``dtype``: of the outputs, where it is not that of the inputs.

        ``output``: a Value promised by ``later``.
        """
        known = [value for value in inputs if isinstance(value, Value)]
        like = known[1] if kind == "Where" and len(known) > 1 else known[0]
        values = [value if isinstance(value, Value) else self.constant(_typed(value, like.dtype)) for value in inputs]
        names = [output.name] if output else [self._name() for _ in range(n)]
        # named, because onnxruntime 1.20 makes names of its own out of these and needs them to differ
        self._scopes[-1].append(helper.make_node(kind, [v.name for v in values], names, name=names[0], **attributes))
        dtype = "bool" if kind in TRUTHS else dtype or like.dtype
        outputs = tuple(Value(self, name, dtype) for name in names)
        return outputs if n > 1 else outputs[0]

    def input(self, name: str, dtype: str, shape: Shape) -> Value:
        """An input of the whole graph. Axes with a name are free."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], list(shape)))
        return Value(self, name, dtype)

    def output(self, name: str, value: Value, shape: Shape) -> None:
        """Names a value as an output of the whole graph."""
        self._scopes[0].append(helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TYPES[value.dtype], list(shape)))

    def constant(self, array: np.ndarray) -> Value:
        """A constant, stored once however often it is used."""
        array = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = numpy_helper.from_array(array, self._name())
        return Value(self, self._constants[key].name, array.dtype.name)

    def later(self, dtype: str) -> Value:
        """A Value whose node is written afterwards, inside ``first``."""
        return Value(self, self._name(), dtype)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Nodes written inside come before all others."""
        with self._scope() as nodes:
            yield
        self._scopes[0][:0] = nodes

    def concat(self, values: Sequence[Any], axis: int) -> Value:
        """Values one behind the other."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def sizes(self, value: Any) -> Value:
        """A number, or a Value of shape () or (1,), as (1,) int64."""
        return value if isinstance(value, Value) else self.constant(np.array([value], np.int64))

    def scan(self, state: Value, items: Value, step: Any) -> Value:
        """step(state, item) -> (next state, output) over the first axis of ``items`` (at least one) -> all outputs."""
        with self._scope() as nodes:
            inputs = [Value(self, self._name(), value.dtype) for value in (state, items)]
            following, output = step(*inputs)
            output = self.op("Identity", output)
        body = _subgraph(nodes, inputs, [following, output])
        return self.op("Scan", state, items, n=2, body=body, num_scan_inputs=1)[1]

    def choose(self, condition: Value, yes: Any, no: Any) -> tuple[Value, ...]:
        """The Values of ``yes()`` where the condition () holds, else those of ``no()``; only one side is computed."""
        branches = []
        for branch in (yes, no):
            with self._scope() as nodes:
                outputs = [self.op("Identity", value) for value in branch()]
            branches.append((_subgraph(nodes, [], outputs), outputs))
        (then, outputs), (otherwise, _) = branches
        names = [self._name() for _ in outputs]
        node = helper.make_node("If", [condition.name], names, then_branch=then, else_branch=otherwise)
        self._scopes[-1].append(node)
        return tuple(Value(self, name, value.dtype) for name, value in zip(names, outputs, strict=True))

    def model(self, name: str, metadata: Mapping[str, Any]) -> ModelProto:
        """The checked model; ``metadata`` is stored as JSON under "kws_s5"."""
        graph = helper.make_graph(self._scopes[0], name, self._inputs, self._outputs, list(self._constants.values()))
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="kws_s5"
        )
        helper.set_model_props(model, {"kws_s5": json.dumps(metadata, ensure_ascii=False, allow_nan=False)})
        checker.check_model(model)
        return model

    @contextmanager
    def _scope(self) -> Iterator[list]:
        self._scopes.append([])
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    def _name(self) -> str:
        self._count += 1
        high, low = divmod(self._count, len(ascii_letters))  # short names: there are many, and they count in the file
        return (ascii_letters[high - 1] if high else "") + ascii_letters[low]


def _subgraph(nodes: list, inputs: list[Value], outputs: list[Value]) -> GraphProto:
    """Sizes inside are left to the runtime."""
    described = [[_described(value) for value in values] for values in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *described)


def _described(value: Value) -> ValueInfoProto:
    return helper.make_tensor_value_info(value.name, TYPES[value.dtype], None)


def _typed(value: Any, dtype: str) -> np.ndarray:
    """Integer arrays (axes, shapes, indices) keep their type; everything else follows the Value it stands beside."""
    array = np.asarray(value)
    keeps = isinstance(value, np.ndarray) and not (array.dtype.kind == "f" and dtype.startswith("float"))
    return array if keeps else array.astype(dtype)


def _int64(value: Any) -> Any:
    return value if isinstance(value, Value) else np.asarray(value, np.int64)
