"""The GPU scan: its kernels interpreted on the CPU, compiled without a GPU, its fallback, and on a real device."""

import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from kws_s5.ops.scan import cuda as scan_cuda
from kws_s5.ops.scan import operators, triton_launch
from kws_s5.ops.scan.choice import scan

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
DIRECTIONS = ["forward", "backward", "both"]
DIMENSIONS = {"constant": 1, "per clip": 2, "per step": 3}


def make(L, kind, *, N=2, P=3, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    shape = {1: (P,), 2: (N, P), 3: (N, L, P)}[DIMENSIONS[kind]]
    angle = 6 * torch.rand(shape, generator=generator, dtype=torch.float64)
    a = 0.97 * torch.cat([angle.cos(), angle.sin()], -1)
    Bu, initial = (torch.randn(*s, 2 * P, generator=generator, dtype=torch.float64) for s in [(N, L), (N,)])
    return [x.to(device, dtype).requires_grad_() for x in (a, Bu, initial)]


def weigh(xs):
    return torch.cos(torch.arange(xs.numel(), dtype=torch.float64)).view(xs.shape).to(xs)


@needs_triton
@pytest.mark.slow
def test_kernels_under_the_interpreter_equal_float64():
    script = Path(__file__).with_name("interpreted_triton.py")
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@needs_triton
@pytest.mark.slow
def test_every_kernel_compiles_without_a_gpu(tmp_path):
    program = (
        "from kws_s5.ops.scan import triton_launch; triton_launch.STEPS = 8\n"  # shorter code, the same kernels
        "from benchmarks import compile_report as report\n"
        "kinds, dtype = ('constant', 'per step'), report.torch.float32\n"
        "launches = [launch for kind in kinds for launch in report.caught(dtype, kind, 'both')]\n"
        "kernels = {(l.kernel, str(l.specialization())): l for l in launches}.values()\n"
        "print(len(kernels), [report.resources(launch, 90)[2:5] for launch in kernels])"
    )
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
    count, spills = result.stdout.split(maxsplit=1)
    assert int(count) >= 10 and spills.strip() == str([[0, 0, 0]] * int(count))


@pytest.mark.parametrize("kind", DIMENSIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("L", [0, 1, 40])
def test_the_fallback_gives_the_operators_results(direction, kind, L):
    a, Bu, initial = (x.detach() for x in make(L, kind))
    initial = None if direction == "backward" and kind == "per step" else initial
    xs = operators.scan_op(a, Bu, initial, direction)  # the CPU's kernels
    assert torch.allclose(scan_cuda.chunked_forward(a, Bu, initial, direction), xs)
    for needs_Lambda in (True, False):
        arguments = (a, xs, initial, weigh(xs), direction, needs_Lambda)
        for ours, other in zip(scan_cuda.chunked_adjoint(*arguments), operators.adjoint_op(*arguments), strict=True):
            assert ours.shape == other.shape and torch.allclose(ours, other)


def test_where_triton_fails_plain_torch_goes_on_and_says_so_once(monkeypatch):
    def broken(*_):
        raise RuntimeError("no kernel image\nmore")

    monkeypatch.setattr(triton_launch, "forward", broken)
    monkeypatch.setattr(scan_cuda, "_failure", None)
    a, Bu, initial = (x.detach() for x in make(20, "constant"))
    with pytest.warns(RuntimeWarning, match="Triton scan does not run here .RuntimeError: no kernel image"):
        xs = scan_cuda.forward(a, Bu, initial, "forward")
    assert torch.allclose(xs, scan(a, Bu, initial=initial, backend="reference"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan_cuda.forward(a, Bu, initial, "forward")
        scan_cuda.adjoint(a, xs, initial, weigh(xs), "forward", True)


def test_running_out_of_memory_is_not_taken_for_a_broken_triton(monkeypatch):
    def hungry(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(triton_launch, "forward", hungry)
    monkeypatch.setattr(scan_cuda, "_failure", None)
    a, Bu, _ = (x.detach() for x in make(20, "constant"))
    with pytest.raises(torch.OutOfMemoryError):
        scan_cuda.forward(a, Bu, None, "forward")
    assert scan_cuda._failure is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnADevice:
    @pytest.mark.parametrize("kind", DIMENSIONS)
    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize("L", [1, 2, 3, 63, 64, 65, 1000, 40_000])
    def test_outputs_and_gradients_equal_the_chunked_scan(self, L, direction, kind):
        for dtype, tolerance in [(torch.float64, 1e-10), (torch.float32, 1e-4)]:
            inputs = make(L, kind, P=33, dtype=dtype, device="cuda")
            results = []
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                for backend in ("triton", "chunked"):
                    x = inputs if backend == "triton" else [x.detach().double().requires_grad_() for x in inputs]
                    start = None if direction == "backward" and kind == "per step" else x[2]
                    xs = scan(x[0], x[1], direction=direction, initial=start, backend=backend)
                    leaves = x if start is not None else x[:2]
                    results.append([xs, *torch.autograd.grad((xs * weigh(xs)).sum(), leaves)])
            for ours, other in zip(*results, strict=True):
                assert (ours - other).abs().max() <= tolerance * (1 + other.abs().max())

    def test_a_cuda_graph_replays_the_same_states(self):
        a, Bu, _ = (x.detach() for x in make(1000, "constant", dtype=torch.float32, device="cuda"))
        expected = scan(a, Bu, direction="both")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            xs = scan(a, Bu, direction="both")
        xs.fill_(float("nan"))
        graph.replay()
        assert torch.equal(xs, expected)

    def test_the_compiled_graph_has_no_breaks(self):
        a, Bu, _ = make(100, "constant", dtype=torch.float32, device="cuda")
        run = torch.compile(lambda a, Bu: scan(a, Bu, direction="both").square(), fullgraph=True)
        assert torch.allclose(run(a, Bu), scan(a, Bu, direction="both").square(), rtol=1e-4, atol=1e-4)

    def test_opcheck(self):
        a, Bu, initial = make(5, "constant", device="cuda")
        torch.library.opcheck(operators.scan_op, (a, Bu, initial, "both"))
