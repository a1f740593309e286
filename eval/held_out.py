"""Whether a background is held out: which recordings chose a model's thresholds is written into its file.

A figure on recordings that chose something flatters the model; kws-eval --stream says so. Only marks of the recordings
are kept (eight digits of a hash), neither names nor sound.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kws_s5.eval.stream_audio import Clip

READ = 1 << 16  # bytes of a file that its mark looks at
MARKS = "recordings"  # in bundle.metrics["calibration"]


def marks(background: Sequence[Clip | Path]) -> list[str]:
    """One mark for each recording, sorted; the same sound in the same format has the same one, whatever its name."""
    return sorted({_mark(source) for source in background})


def remark(metrics: dict[str, Any], background: Sequence[Clip | Path]) -> str:
    """What has to be said about figures on ``background``; empty where it chose nothing that the model file knows of.

    Args:
        metrics: of the model file.
    """
    calibration = metrics.get("calibration")
    used = calibration.get(MARKS, ()) if isinstance(calibration, dict) else ()
    found = [_mark(source) for source in background]
    n = sum(mark in set(used) for mark in found)
    if not n:
        return ""
    return (
        f"not held out: {n} of these {len(found)} recordings chose the thresholds (kws-calibrate), which flatters "
        "the figures; judge the model on others"
    )


def _mark(source: Clip | Path) -> str:
    if isinstance(source, Clip):
        content = source.waveform.tobytes()[:READ]
        size = source.waveform.nbytes
    else:
        with open(source, "rb") as file:
            content = file.read(READ)
        size = source.stat().st_size
    return hashlib.sha256(content + str(size).encode()).hexdigest()[:8]
