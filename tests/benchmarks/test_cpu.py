"""The CPU benchmark runs, compares what it says and leaves out what is missing."""

import importlib.util
import time

import pytest
import torch

from benchmarks import contestants, cpu, recipes, turns
from kws_s5 import ops
from kws_s5.model.layer import S5Layer
from kws_s5.ops import switch


def test_a_round_gives_times_of_every_contestant_and_a_table():
    found = [contestants.build(name) for name in ("ours, compiled", "ours, portable")]
    times = cpu.compare(found, N=1, L=400, rounds=1)
    text = cpu.report(
        {
            "batch": 1,
            "length": 400,
            "rounds": 1,
            "machine": cpu.machine(1),
            "ms_per_clip": times,
            "peak_mb_per_clip": {},
            "us_per_step": {},
        }
    )
    assert all(value > 0 for kinds in times.values() for value in kinds.values())
    assert all(f"| {name} |" in text for name in times)


@pytest.mark.parametrize("way", ["scan kernel", "portable"])
def test_every_way_is_the_same_model_and_leaves_no_switch_behind(way):
    ours = contestants.build("ours, compiled")
    x = torch.randn(1, 300, 1)
    ours.model.eval()
    with ops.use("auto"):
        with contestants.running(way):
            assert not S5Layer.fuse and switch.mode() == ("reference" if way == "portable" else "auto")
            expected = ours.model(x)
        assert S5Layer.fuse and switch.mode() == "auto"
        found = ours.model(x)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_nobody_has_a_place_in_the_order():
    names = ["a", "b", "c"]
    orders = [turns.order(names, k) for k in range(6)]
    assert all(sorted(found) == names for found in orders)
    assert all({found[place] for found in orders} == set(names) for place in range(3))


def test_turns_give_wall_and_processor_time():
    found = turns.take_turns({"asleep": lambda: time.sleep(0.05), "awake": lambda: sum(range(10**6))}, rounds=3)
    assert found["asleep"].wall >= 0.05 > found["asleep"].processor
    assert found["awake"].processor > 0


def test_recipes_are_compared_in_every_way():
    found = recipes.compare("quickstart", N=2, rounds=1)
    assert list(found) == list(recipes.VARIANTS) and all(took.wall > 0 for took in found.values())


def test_missing_peer_is_named(capsys):
    if importlib.util.find_spec("lrnnx") is None:
        assert contestants.build("lrnnx S5 (one direction)") is None
        assert "lrnnx" in capsys.readouterr().out
