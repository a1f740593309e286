"""Levels in dBFS, and what is called a fault."""

import math

import numpy as np
import pytest

from kws_s5.audio.level import Meter, clipped, dbfs, peak, rms


def test_levels_of_a_sine_are_those_of_the_book() -> None:
    x = 0.5 * np.sin(2 * np.pi * np.arange(16000) / 160).astype(np.float32)
    assert dbfs(peak(x)) == pytest.approx(-6.0206, abs=1e-3) and dbfs(rms(x)) == pytest.approx(-9.0309, abs=1e-3)
    assert dbfs(1.0) == 0.0 and dbfs(0.0) == -math.inf and peak(x[:0]) == rms(x[:0]) == clipped(x[:0]) == 0.0
    assert peak(np.array([-0.7, 0.2], np.float32)) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("level", "told"),
    [
        (0.0, "digital silence"),
        (-80, "very quiet"),
        (-51, "very quiet"),
        (-49, ""),
        (-20, ""),
        (0, ""),
        (20, "clipped"),
    ],
)
@pytest.mark.parametrize("block", [100, 4000, 16000])
def test_one_line_says_what_is_wrong_with_the_level(level: float, told: str, block: int) -> None:
    x = np.sin(2 * np.pi * np.arange(16000) / 163.7).astype(np.float32)
    x = x * 0 if told == "digital silence" else np.clip(x * 0.999 * 10 ** (level / 20), -1, 1)
    meter = Meter()
    for start in range(0, len(x), block):
        meter.push(x[start : start + block])
    assert told in meter.note() and bool(told) == bool(meter.note())
