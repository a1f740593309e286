"""The house stays easy to see: README map = tree, imports go downward only, files stay short."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ["kws_s5", "recipes", "eval", "demo", "benchmarks"]
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
# room -> rooms it may import (config, errors, atomic, audio, ... are leaves that everyone may use)
ALLOWED = {
    "config": set(),
    "ssm": {"config"},
    "model": {"config", "ssm"},
    "data": {"config"},
    "training": {"config", "ssm", "model", "data", "bundle"},
    "export": {"config", "model", "bundle"},
    "listening": {"config", "ssm", "model", "data", "bundle"},
    "recipes": {"config", "ssm", "model", "data", "bundle", "training"},
    "eval": {"config", "ssm", "model", "data", "bundle", "training", "listening", "export"},
    "demo": {"config", "ssm", "model", "data", "bundle", "listening", "eval"},
}
FENCES = {
    "gradio": {"demo"}, "matplotlib": {"plots"}, "triton": {"ssm"}, "numba": {"ssm", "model"},
    "lightning": {"training"}, "sklearn": {"metrics"}, "onnx": {"export"}, "onnxruntime": {"export"},
}


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "kws_s5" else parts[0]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward_only(path: Path) -> None:
    room = room_of(path)
    if room not in ALLOWED:
        return
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("kws_s5.")}
    above = (rooms & set(ALLOWED)) - ALLOWED[room] - {room}
    assert not above, f"{room} must not import {sorted(above)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_stay_behind_their_fences(path: Path) -> None:
    if room_of(path) == "benchmarks":
        return
    tops = {name.split(".")[0] for name in imported(path)}
    for package, rooms in FENCES.items():
        assert package not in tops or room_of(path) in rooms, f"{package} is only for {sorted(rooms)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "begins with a docstring"
    assert text.count("\n") <= 300, "one idea a file"


def test_readme_map_names_every_source_file_and_nothing_else() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- map -->\s*```\n(.*?)```", readme, re.DOTALL)
    assert block, "README.md has a map between <!-- map --> and the end of its code block"
    mapped, folder = set(), ""
    for line in filter(str.strip, block.group(1).splitlines()):
        names = re.split(r"\s{2,}", line.strip())[0]
        if names.endswith("/"):
            folder = names
        else:
            mapped |= {folder + name for name in names.split()}
    tree = {str(path.relative_to(ROOT)) for path in SOURCES if path.name != "__init__.py"}
    assert mapped == tree
