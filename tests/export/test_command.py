"""kws-export and kws-scan with its files, as users call them; and without torch on the machine."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from kws_s5.errors import UserError
from kws_s5.export.cli import main as export_main
from kws_s5.export.export import export
from kws_s5.listening.scan_cli import main as scan_main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "demo" / "examples" / "yes_no.flac"
WITHOUT_TORCH = """
import sys
GONE = {"torch", "torchaudio", "lightning", "numba", "scipy", "safetensors", "sklearn", "matplotlib", "onnx"}

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
"""
COLD_START = 2.0  # seconds of processor time; idle machines take 0.6, in 1 s of the clock


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    assert export_main(["commands12", "--out", str(folder), "--weights", "int6"]) == 0
    return folder / "commands12.onnx"


def without_torch(code: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code, *map(str, arguments)], text=True, capture_output=True, cwd=ROOT
    )


def test_both_files_are_written_and_described(exported, capsys, tmp_path) -> None:
    assert {path.name for path in exported.parent.iterdir()} == {"commands12.onnx", "commands12-clip.onnx"}
    assert export_main(["commands12", "--out", str(tmp_path), "--name", "mine", "--rate", "8000"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2 and "mine.onnx  step" in out[0] and "mine-clip.onnx  clip" in out[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "no such file"),
        (["commands12", "--rate", "50"], "hears"),
        (["commands12", "--name", "a/b"], "--name"),
        (["commands12", "--name", "a\nb"], "--name"),
    ],
)
def test_mistakes_of_export_take_one_line(arguments, reason, capsys, tmp_path) -> None:
    assert export_main([*arguments, "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert reason in err and err.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weights", ["float32", "int8", "int6"])
def test_a_model_that_gives_no_numbers_is_not_written(weights, make_bundle, tmp_path) -> None:
    bundle = make_bundle()
    bundle.model.head.decoder.weight.data.fill_(3e38)
    with pytest.raises(UserError, match="NaN or infinity"):
        export(bundle, "sick", tmp_path, weights=weights)
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_exported_says_why(make_bundle, capsys, tmp_path) -> None:
    make_bundle(ssm={"bidirectional": True}, head={"frame_logits": False}).save(tmp_path / "model.safetensors")
    assert export_main([str(tmp_path / "model.safetensors"), "--out", str(tmp_path)]) == 2
    assert "it is bidirectional" in capsys.readouterr().err


def test_a_run_folder_is_exported_from_within_and_an_exported_file_is_not(make_bundle, capsys, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    make_bundle().save(folder / "model.safetensors")
    monkeypatch.chdir(folder)
    assert export_main([".", "--out", "exported"]) == 0
    assert {path.name for path in (folder / "exported").iterdir()} == {"mine.onnx", "mine-clip.onnx"}
    assert export_main(["exported/mine.onnx"]) == 2
    assert "an exported model" in capsys.readouterr().err


def test_nothing_is_written_when_one_of_the_graphs_differs(make_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr("kws_s5.export.export._difference", lambda bundle, kind, *rest: 1.0 * (kind == "clip"))
    with pytest.raises(UserError, match="clip graph differs"):
        export(make_bundle(), "x", tmp_path)
    assert not list(tmp_path.iterdir())


def test_scan_hears_the_same_words_with_either_runtime(exported, capsys) -> None:
    words = []
    for arguments in (["--model", "commands12"], ["--model", exported], ["--model", exported, "--runtime", "onnx"]):
        assert scan_main([str(EXAMPLE), *map(str, arguments), "--format", "json"]) == 0
        words.append([event["word"] for event in json.loads(capsys.readouterr().out)["files"][0]["events"]])
    assert words[0] == words[1] == words[2] == ["yes", "no"]


def test_scan_with_processes_and_saved_hits(exported, capsys, tmp_path) -> None:
    files = [str(EXAMPLE), str(EXAMPLE.with_name("six_commands.flac"))]
    assert scan_main([*files, "--model", str(exported), "--processes", "2", "--save-hits", str(tmp_path)]) == 0
    assert len(list(tmp_path.rglob("*.wav"))) >= 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--runtime", "onnx"], "kws-export MODEL writes one"),
        (["--runtime", "onnx", "--model", "commands12"], "commands12 is not"),
        (["--runtime", "torch", "--model", "x.onnx"], "is exported"),
        (["--model", "x.onnx"], "cannot be read"),
    ],
)
def test_mistakes_of_scan_take_one_line(arguments, reason, capsys) -> None:
    assert scan_main([str(EXAMPLE), *arguments]) == 2
    err = capsys.readouterr().err
    assert reason in err and err.count("\n") == 1


def test_scan_needs_no_torch_and_starts_quickly(exported) -> None:
    code = """
import os
from kws_s5.listening.scan_cli import main
status = main(sys.argv[1:])
times = os.times()
print(f"{times.user + times.system:.2f} {sorted(GONE & set(sys.modules))}")
sys.exit(status)
"""
    done = without_torch(code, EXAMPLE, "--model", exported, "--format", "csv", "--quiet")
    assert done.returncode == 0, done.stderr
    *rows, last = done.stdout.splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["yes", "no"]
    seconds, loaded = last.split(" ", 1)
    assert loaded == "[]" and float(seconds) < COLD_START


@pytest.mark.parametrize("command", ["kws_s5.listening.scan_cli", "kws_s5.eval.cli", "kws_s5.recipes.train"])
def test_without_torch_other_commands_say_what_to_install(command) -> None:
    done = without_torch(
        f"from {command} import main\nsys.exit(main(sys.argv[1:]))", "quickstart" if "train" in command else EXAMPLE
    )
    assert done.returncode == 2 and "pip install 'kws-s5[torch]'" in done.stderr and done.stderr.count("\n") == 1
    done = without_torch("import kws_s5\nkws_s5.load")
    assert done.stderr.splitlines()[-1].startswith("ImportError: ") and "kws-s5[torch]" in done.stderr


@pytest.mark.slow
@pytest.mark.install
def test_a_clean_environment_from_the_package_index_scans_without_torch(exported, tmp_path) -> None:
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    reach = [*pip, "download", "--quiet", "--no-deps", "--dest", tmp_path, "soxr"]
    if subprocess.run(reach, capture_output=True).returncode:
        pytest.skip("no package index can be reached")
    subprocess.run([*pip, "install", "--quiet", f"{ROOT}[onnx-runtime]"], check=True)
    installed = subprocess.run([*pip, "list", "--format", "json"], check=True, capture_output=True).stdout
    names = {package["name"].lower() for package in json.loads(installed)}
    assert "onnxruntime" in names and not names & {"torch", "lightning", "numba", "scipy", "onnx"}
    command = [environment / "bin" / "kws-scan", EXAMPLE, "--runtime", "onnx", "--model", exported, "--format", "csv"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=plain)
    assert done.returncode == 0, done.stderr
    assert [row.split(",")[1] for row in done.stdout.splitlines()[1:]] == ["yes", "no"]
