"""One switch: nested, restored, a thread's own; and plain torch wherever nothing can be compiled, with one warning."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kws_s5.ops
from kws_s5.errors import UserError
from kws_s5.ops import switch

# a training step through the bank and fused layers, a step at irregular times on a grid, and a stream in three pieces
WORK = """
import json, sys, warnings
import numpy as np, torch
from kws_s5.bundle import load
from kws_s5.config import S5Mixer
from kws_s5.listening.torch_engine import CausalEngine
from kws_s5.ssm.s5 import S5SSM

torch.set_num_threads(1)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    torch.manual_seed(0)
    sound = 0.1 * torch.randn(2, 4000, 1)
    bundle = load("commands12")
    loss = bundle.model.train()(sound).logsumexp(-1).sum()
    loss.backward()
    slope = sum(float(p.grad.abs().sum()) for p in bundle.model.layers.parameters())
    irregular = S5SSM(4, S5Mixer(ssm_size=8, blocks=1))
    y = irregular(torch.randn(2, 20, 4), dt=torch.randint(1, 4, (2, 20)).float()).square().sum()
    y.backward()
    fall = sum(float(p.grad.abs().sum()) for p in irregular.parameters())
    bundle.model.eval()
    engine = CausalEngine(bundle, 16000.0, 2)
    state, pieces = engine.initial_state(), []
    for piece in np.split(sound[..., 0].numpy(), [1001, 2500], 1):
        logits, state = engine.run(piece, state, 0)
        pieces.append(logits)
    stream = np.concatenate(pieces, 1)
ours = [str(w.message) for w in said if "compiled" in str(w.message)]
kernels = [m for m in sys.modules if m.startswith("kws_s5.ops.") and m.endswith("kernel")]
print(json.dumps({"numbers": [loss.item(), slope, y.item(), fall, *map(float, np.abs(stream).sum((0, 1)))],
                  "said": ours, "kernels": kernels}))
"""
NO_COMPILER = """
import numba.core.compiler
def refuse(*args, **options):
    raise RuntimeError("no compiler today")
numba.core.compiler.compile_extra = refuse
"""


def work(before: str = "", **environment: str) -> dict:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run(
        [sys.executable, "-c", before + WORK], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def plain() -> dict:
    return work(KWS_S5_OPS="reference")


@pytest.mark.slow
def test_reference_compiles_nothing_and_says_nothing(plain: dict) -> None:
    assert not plain["kernels"] and not plain["said"]


@pytest.mark.slow
def test_auto_compiles_and_gives_the_same_numbers(plain: dict) -> None:
    fast = work(KWS_S5_OPS="auto")
    assert {"kws_s5.ops.bank.kernel", "kws_s5.ops.stream.kernel"} <= set(fast["kernels"]) and not fast["said"]
    assert fast["numbers"] == pytest.approx(plain["numbers"], rel=2e-3)


@pytest.mark.slow
def test_a_broken_numba_costs_one_warning_and_no_result(plain: dict, tmp_path: Path) -> None:
    """It is found, as importlib.util.find_spec would say, but it cannot be imported."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise SystemError('built for another Python\\nsecond line')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    found = work(KWS_S5_OPS="auto", PYTHONPATH=path)
    assert found["said"] == [
        "nothing can be compiled here (SystemError: built for another Python); using plain torch, slower"
    ]
    assert found["numbers"] == pytest.approx(plain["numbers"], rel=1e-5)


@pytest.mark.slow
def test_a_compiler_that_fails_costs_one_warning_and_no_result(plain: dict, tmp_path: Path) -> None:
    found = work(NO_COMPILER, KWS_S5_OPS="auto", NUMBA_CACHE_DIR=str(tmp_path))
    assert len(found["said"]) == 1 and "no compiler today" in found["said"][0]
    assert found["numbers"] == pytest.approx(plain["numbers"], rel=1e-5)


OPERATIONS = {
    "scan": "from kws_s5.ops.scan.choice import scan\n"
    "x = torch.ones(1, 5, 4, requires_grad=True)\ny = scan(torch.tensor([0.5, 0.2, 0.1, 0.0]), x)\n"
    "y.sum().backward()\ngot = [float(y.sum()), float(x.grad.sum())]",
    "bank": "from kws_s5.ops.bank.power import bank_power\n"
    "u = torch.linspace(-1, 1, 40)[None]\na, c = torch.tensor([[0.9, 0.1]]), torch.ones(1, 3, 2)\n"
    "got = bank_power(u, torch.tensor([40]), a, c, torch.tensor([10.0]).double(), F=4, n_poles=2)[0, :, 0]"
    ".tolist()",
    "bank stream": "from kws_s5.ops.bank.power import stream_power\n"
    "u = torch.linspace(-1, 1, 40)[None]\na, c = torch.tensor([[0.9, 0.1]]), torch.ones(1, 3, 2)\n"
    "got = stream_power(u, a, c, torch.tensor([10.0]).double(), recent=torch.zeros(1, 2), "
    "memory=torch.zeros(1, 5), position=0, F=4, n_poles=2)[0, :, 0].tolist()",
    "grid": "from kws_s5.ops.scan.grid import scan_grid\n"
    "t = torch.rand(3, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()\n"
    "y = scan_grid(t, torch.tensor([[0, 2, 1, 1]]), torch.ones(1, 4, 4), 'both')\ny.sum().backward()\n"
    "got = [float(y.sum()), float(t.grad.sum())]",
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whichever_operation_comes_first_meets_the_failing_compiler(operation: str, tmp_path: Path) -> None:
    tail = "\nimport json, sys; print(json.dumps(got))"
    found = []
    for before, switched in ((NO_COMPILER, "auto"), ("", "reference")):
        environment = {"KWS_S5_OPS": switched, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", f"{before}import torch\n{OPERATIONS[operation]}{tail}"],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stderr.count("using plain torch") == (1 if before else 0)
        found.append(json.loads(done.stdout))
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_it_nests_and_what_held_before_holds_afterwards() -> None:
    before = switch.mode()
    with kws_s5.ops.use("reference"):
        assert not switch.active() and not switch.compiled()
        with kws_s5.ops.use("auto"):
            assert switch.active()
        assert not switch.active()
        with pytest.raises(ZeroDivisionError), kws_s5.ops.use("auto"):
            1 / 0  # noqa: B018
        assert not switch.active()
    assert switch.mode() == before


def test_other_threads_go_by_the_environment() -> None:
    seen = []
    with kws_s5.ops.use("reference"), kws_s5.ops.use("auto"), kws_s5.ops.use("reference"):
        thread = threading.Thread(target=lambda: seen.append(switch.mode()))
        thread.start()
        thread.join()
    assert seen == [os.environ.get("KWS_S5_OPS", "auto")]


def test_an_unknown_value_is_told_in_one_line() -> None:
    with pytest.raises(UserError, match="ops.use: 'fast' is unknown; it is 'auto'"), kws_s5.ops.use("fast"):
        pass
    code = "import sys\nfrom kws_s5.cli import guarded\nfrom kws_s5.ops import switch\nsys.exit(guarded(switch.mode))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"KWS_S5_OPS": "slow"}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: KWS_S5_OPS: 'slow' is unknown") and done.stderr.count("\n") == 1


def test_the_switch_costs_neither_torch_nor_numba() -> None:
    code = "import sys, kws_s5.ops; print([m for m in ('torch', 'numba', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_compiled_graph_follows_the_switch() -> None:
    import torch

    from kws_s5.ops.scan.choice import scan

    a, x = torch.tensor([0.5, 0.1]), torch.randn(1, 7, 2)
    run = torch.compile(lambda x: scan(a, x), backend="aot_eager")
    for mode in ("auto", "reference", "auto"):
        with kws_s5.ops.use(mode), torch.profiler.profile() as profile:
            torch.testing.assert_close(run(x), scan(a, x, backend="reference"))
        with kws_s5.ops.use(mode):
            expected = switch.compiled()
        assert any("kws_s5::scan" in event.key for event in profile.key_averages()) == expected
