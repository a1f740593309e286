"""A small CSV of irregular series to try and to look at: weights on springs, measured now and then.

    python -m kws_s5.data.series.example springs.csv

Every series is a damped swing x'' = -w^2 x - 0.2 x' with its own w; rows come at random times. Features: a noisy
reading of x, sometimes missing. Targets: the true position and velocity.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from kws_s5.atomic import write_text
from kws_s5.cli import guarded

N_SERIES, N_ROWS = 80, 40
DAMPING = 0.1  # 1/s
NOISE = 0.2
TARGETS = ("position", "velocity")


def text() -> str:
    """The file's text; always the same."""
    rng = np.random.default_rng(0)
    lines = ["spring,seconds,reading," + ",".join(TARGETS)]
    for i in range(N_SERIES):
        times = np.cumsum(0.01 + rng.exponential(0.14, N_ROWS))
        frequency, phase = rng.uniform(1.5, 3.0), rng.uniform(0, 2 * np.pi)
        swing = np.exp((-DAMPING + 1j * frequency) * times + 1j * phase)
        position, velocity = swing.real, ((-DAMPING + 1j * frequency) * swing).real
        reading = position + rng.normal(0, NOISE, N_ROWS)
        missing = rng.random(N_ROWS) < 0.05
        for t, r, gone, p, v in zip(times, reading, missing, position, velocity, strict=True):
            lines.append(f"s{i:02d},{t:.3f},{'' if gone else f'{r:.3f}'},{p:.4f},{v:.4f}")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Writes the example to the named file."""
    parser = argparse.ArgumentParser(
        prog="python -m kws_s5.data.series.example",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="?", type=Path, default=Path("springs.csv"), help="file to write (springs.csv)")
    path = parser.parse_args(argv).path

    def command() -> None:
        write_text(path, text())
        print(f"{path}: {N_SERIES} series of {N_ROWS} rows; targets {' and '.join(TARGETS)}")

    return guarded(command)


if __name__ == "__main__":
    sys.exit(main())
