"""The wheel is what users get: built here, installed into a clean environment, its commands run from there."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = ["kws-train", "kws-eval", "kws-data", "kws-scan", "kws-listen", "kws-calibrate", "kws-export", "kws-demo"]
HEAVY = ["lightning", "matplotlib", "gradio", "librosa", "torchaudio"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment holding only our wheel; the dependencies are those of the running environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "env"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    # A plain path line: packages are found there, but its .pth files (our editable install) are not processed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--quiet",
        "--no-index",
        "--ignore-installed",
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    return environment / "bin"


@pytest.mark.slow
@pytest.mark.install
@pytest.mark.parametrize("command", COMMANDS)
def test_installed_command_shows_its_help(installed: Path, command: str, tmp_path: Path) -> None:
    done = subprocess.run([installed / command, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


@pytest.mark.slow
@pytest.mark.install
def test_wheel_puts_only_kws_s5_into_site_packages(installed: Path) -> None:
    (site,) = installed.parent.glob("lib/python*/site-packages")
    names = {path.name for path in site.iterdir() if path.is_dir() and not path.name.endswith(".dist-info")}
    assert names <= {"kws_s5", "__pycache__"}
    assert (site / "kws_s5" / "py.typed").exists()  # type checkers of users read our annotations
    assert {"recipes", "eval", "demo"} <= {path.name for path in (site / "kws_s5").iterdir()}


@pytest.mark.slow
def test_importing_kws_s5_imports_no_heavy_package() -> None:
    code = f"import sys, kws_s5; kws_s5.__version__; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
