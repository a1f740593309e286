"""The C code on a microcontroller: a Cortex-M4F, emulated by QEMU, gives torch's logits."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from kws_s5.export.c_source import write_c

HERE = Path(__file__).parent / "cortex_m"
GCC, QEMU = shutil.which("arm-none-eabi-gcc"), shutil.which("qemu-system-arm")
pytestmark = pytest.mark.skipif(not (GCC and QEMU), reason="needs gcc-arm-none-eabi, newlib and qemu-system-arm")


def sound(n: int) -> np.ndarray:
    """The numbers of main.c."""
    seed, out = 1, np.empty(n, np.float32)
    for i in range(n):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = np.float32(seed - (1 << 32) if seed >> 31 else seed) * np.float32(0.25 / 2147483648.0)
    return out


def run_on_board(folder: Path) -> tuple[np.ndarray, int]:
    """Logits of the last frame, and instructions for 10 ms."""
    flags = [
        "-mcpu=cortex-m4",
        "-mthumb",
        "-mfloat-abi=hard",
        "-mfpu=fpv4-sp-d16",
        "-O2",
        "-std=gnu99",
        "-ffreestanding",
        "-nostartfiles",
        "-specs=nosys.specs",
        "-T",
        str(HERE / "mps2.ld"),
        "-I",
        str(folder),
    ]
    sources = [str(HERE / "main.c"), str(folder / "kws_step.c"), str(folder / "kws_model.c")]
    subprocess.run([GCC, *flags, "-o", str(folder / "board.elf"), *sources, "-lm"], check=True, capture_output=True)
    command = [
        QEMU,
        "-M",
        "mps2-an386",
        "-nographic",
        "-monitor",
        "none",
        "-serial",
        "none",
        "-icount",
        "shift=0",
        "-semihosting-config",
        "enable=on,target=native",
        "-kernel",
        str(folder / "board.elf"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    *bits, instructions = (int(line, 16) for line in (done.stdout + done.stderr).split())
    return np.array(bits, np.uint32).view(np.float32), instructions


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_microcontroller_gives_the_logits_of_torch(shipped, tmp_path: Path, weights: str) -> None:
    write_c(shipped, tmp_path, rate=16000.0, weights=weights)
    logits, instructions = run_on_board(tmp_path)
    with torch.no_grad():
        want = shipped.model.frame_logits(torch.from_numpy(sound(8000))[None, :, None])[0, -1].numpy()
    np.testing.assert_allclose(logits, want, atol=1e-3 if weights == "float32" else 0.2)
    assert 1e5 < instructions < 2e7, f"{instructions:,} instructions for 10 ms"
    print(f"{weights}: {instructions:,} instructions for 10 ms")
