"""What more processes bring: python -m benchmarks.scaling. Training, evaluation and scanning with one and with two.

Every job is a real command in processes of its own, one thread each, best of two rounds (a shared machine only ever
makes a run slower). Training counts epochs after the first, so that start-up stays out; the other two count everything.
Writes docs/scaling.json and the table of docs/processes.md.
"""

import argparse
import csv
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kws_s5.atomic import write_json, write_text
from kws_s5.audio.files import save_wav

ROUNDS = 2
EPOCHS = 4
BATCH = 32  # clips of a step, over all processes
SCAN_SECONDS = 1800.0  # of each of two recordings
PAGE = Path("docs/processes.md")


def command(name: str, *arguments: object) -> float:
    """Seconds that a command of ours takes, one thread a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    subprocess.run(
        [shutil.which(name) or name, *map(str, arguments)], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - start


def training(folder: Path, n: int) -> float:
    """Seconds of an epoch."""
    out = folder / f"run{n}"
    command(
        "kws-train",
        "quickstart",
        "--overwrite",
        "--training.out",
        out,
        "--training.epochs",
        EPOCHS,
        "--training.batch-size",
        BATCH // n,
        "--training.devices",
        n,
        "--training.strategy",
        "ddp" if n > 1 else "auto",
        "--training.no-progress",
    )
    seconds = [float(row["seconds"]) for row in csv.DictReader((out / "log.csv").open())]
    return (seconds[-1] - seconds[0]) / (EPOCHS - 1)


def evaluation(folder: Path, n: int) -> float:
    """Seconds of a report on all clips."""
    return command("kws-eval", folder / "run1", "--split", "all", "--rate", 16000, 8000, 11025, 44100, "--processes", n)


def scanning(folder: Path, n: int) -> float:
    """Seconds of two long recordings."""
    files = [folder / f"{i}.wav" for i in range(2)]
    for i, file in enumerate(files):
        if not file.exists():
            noise = np.random.default_rng(i).standard_normal(round(SCAN_SECONDS * 16000))
            save_wav(file, 0.05 * noise.astype(np.float32), 16000)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    subprocess.run(
        [shutil.which("kws-scan"), *files, "--processes", str(n)],
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
    )  # it exits with 1 where nothing is found
    return time.perf_counter() - start


def main() -> int:
    """Measures, prints and writes."""
    argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__).parse_args()
    jobs: dict[str, Callable[[Path, int], float]] = {
        "kws-train quickstart, an epoch": training,
        "kws-eval, all clips at four rates": evaluation,
        "kws-scan, 2 x 30 min": scanning,
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, job in jobs.items():
            times = {n: min(job(Path(folder), n) for _ in range(ROUNDS)) for n in (1, 2)}
            found[name] = {"one": round(times[1], 2), "two": round(times[2], 2), "gain": round(times[1] / times[2], 2)}
            print(name, found[name], file=sys.stderr)
    write_json("docs/scaling.json", {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "jobs": found})
    lines = ["| job | one process, s | two, s | gain |", "|---|---|---|---|"]
    lines += [f"| {name} | {t['one']} | {t['two']} | {t['gain']} x |" for name, t in found.items()]
    page = PAGE.read_text(encoding="utf-8")
    table = "<!-- table -->\n" + "\n".join(lines) + "\n<!-- end -->"
    write_text(PAGE, re.sub(r"<!-- table -->.*?<!-- end -->", lambda _: table, page, flags=re.S))
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
