"""The CPU benchmark runs, compares what it says and leaves out what is missing."""

import importlib.util

import torch

from benchmarks import contestants, cpu
from kws_s5.model.layer import S5Layer


def test_a_round_gives_times_of_every_contestant_and_a_table():
    found = [contestants.build(name) for name in ("ours, compiled", "ours, portable")]
    times = cpu.compare(found, N=1, L=400, rounds=1)
    text = cpu.report({"batch": 1, "length": 400, "rounds": 1, "machine": cpu.machine(1), "ms_per_clip": times,
                       "peak_mb_per_clip": {}, "us_per_step": {}})
    assert all(value > 0 for kinds in times.values() for value in kinds.values())
    assert all(f"| {name} |" in text for name in times)


def test_portable_and_compiled_are_the_same_model_and_leave_no_switch_behind():
    compiled, portable = (contestants.build(name) for name in ("ours, compiled", "ours, portable"))
    x = torch.randn(1, 300, 1)
    compiled.model.eval(), portable.model.eval()
    with contestants.plain(True):
        expected = portable.model(x)
    assert S5Layer.fuse
    torch.testing.assert_close(compiled.model(x), expected, rtol=1e-3, atol=1e-4)


def test_missing_peer_is_named(capsys):
    if importlib.util.find_spec("lrnnx") is None:
        assert contestants.build("lrnnx S5 (one direction)") is None
        assert "lrnnx" in capsys.readouterr().out
