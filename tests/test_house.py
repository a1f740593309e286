"""The house stays easy to see: the map equals the tree, imports go downward, in no circle and to public names only."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ["kws_s5", "recipes", "eval", "demo", "benchmarks"]
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
LONGEST = 400  # lines
# room -> rooms it may import; files beside the rooms (errors, atomic, plots, ...) are in ROOT_FILES
ALLOWED = {
    "config": set(),
    "audio": set(),
    "ops": set(),
    "ssm": {"config", "ops"},
    "mixers": {"config", "ops", "ssm"},
    "model": {"config", "ops", "ssm", "mixers"},
    "data": {"config", "audio"},
    "training": {"config", "audio", "ops", "ssm", "mixers", "model", "data"},
    "export": {"config", "audio", "ssm", "model"},
    "listening": {"config", "audio", "ops", "ssm", "model", "data", "export"},
    "recipes": {"config", "training"},
    "eval": {"config", "audio", "ops", "ssm", "model", "data", "training", "listening", "export"},
    "demo": {"config", "audio", "ops", "ssm", "model", "data", "listening", "eval"},
}
# files of kws_s5/ itself -> rooms they may import, and which of the other root files
ROOT_FILES = {
    "__init__": set(),
    "errors": set(),
    "lock": set(),
    "processes": set(),
    "metrics": set(),
    "rate": set(),
    "atomic": set(),
    "printable": set(),
    "cli": {"audio"},
    "plots": set(),
    "bundle_file": set(),
    "bundle": {"config", "data", "model"},
}
ABOVE_BUNDLE = {"training", "export", "listening", "recipes", "eval", "demo"}  # the only rooms that know models on disk
FENCES = {
    "gradio": {"demo"},
    "matplotlib": {"plots"},
    "triton": {"ops"},
    "numba": {"ops"},
    "llvmlite": {"ops"},
    "lightning": {"training"},
    "sklearn": {"metrics"},
    "onnx": {"export"},
    "onnxruntime": {"export", "listening"},
    "wyoming": {"listening"},
    "paho": {"listening"},
}


def name_of(path: Path) -> str:
    """Dotted name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] in ("kws_s5", "benchmarks") else ("kws_s5", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in SOURCES}


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "kws_s5" else parts[0]


def imports(path: Path) -> list[tuple[str, str, ast.stmt]]:
    """(module, name or "", statement) of every import of a file, wherever it stands."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found += [(node.module, alias.name, node) for alias in node.names]
    return found


def needs(path: Path) -> set[str]:
    """Modules of this repository that a file imports, at its top or later."""
    found = set()
    for module, name, _ in imports(path):
        found |= {known for known in (f"{module}.{name}", module) if known in MODULES}
    return found - {name_of(path)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward_only(path: Path) -> None:
    room = room_of(path)
    if room == "benchmarks":
        return
    allowed = ROOT_FILES.get(room, set()) if room not in ALLOWED else ALLOWED[room] | {room}
    rooms = {name.split(".")[1] for name in needs(path) if name.startswith("kws_s5.")}
    above = (rooms & set(ALLOWED)) - allowed
    assert not above, f"{room} must not import {sorted(above)}"
    assert "bundle" not in rooms or room in ABOVE_BUNDLE, "only what stands above models on disk may open them"
    assert "benchmarks" not in rooms


def test_no_room_and_no_root_file_is_unknown() -> None:
    assert {room_of(path) for path in SOURCES} == set(ALLOWED) | set(ROOT_FILES) | {"benchmarks"}


def test_imports_make_no_circle() -> None:
    """Late imports count too: a circle that works because it is closed late is still a circle."""
    graph = {
        name: {need for need in needs(path) if MODULES[need].name != "__init__.py"}
        for name, path in MODULES.items()
        if path.name != "__init__.py"
    }
    seen: dict[str, int] = {}
    trail: list[str] = []

    def visit(name: str) -> None:
        if seen.get(name) == 1:
            pytest.fail("circle: " + " -> ".join([*trail[trail.index(name) :], name]))
        if name in seen:
            return
        seen[name] = 1
        trail.append(name)
        for need in sorted(graph[name]):
            visit(need)
        trail.pop()
        seen[name] = 2

    for name in sorted(graph):
        visit(name)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_imports_another_files_private_names(path: Path) -> None:
    private = [
        f"{module}.{name}"
        for module, name, _ in imports(path)
        if module.split(".")[0] in ("kws_s5", "benchmarks") and re.match(r"_(?!_)", name)
    ]
    assert not private


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_stay_behind_their_fences(path: Path) -> None:
    if room_of(path) == "benchmarks":
        return
    tops = {module.split(".")[0] for module, _, _ in imports(path)}
    for package, rooms in FENCES.items():
        assert package not in tops or room_of(path) in rooms, f"{package} is only for {sorted(rooms)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "begins with a docstring"
    assert text.count("\n") <= LONGEST, "one idea a file"


def test_map_names_every_source_file_and_nothing_else() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- map -->\s*```\n(.*?)```", page, re.DOTALL)
    assert block, "docs/architecture.md has a map between <!-- map --> and the end of its code block"
    mapped, folder = set(), ""
    for line in filter(str.strip, block.group(1).splitlines()):
        names = re.split(r"\s{2,}", line.strip())[0]
        if names.endswith("/"):
            folder = names
        else:
            mapped |= {folder + name for name in names.split()}
    tree = {str(path.relative_to(ROOT)) for path in SOURCES if path.name != "__init__.py"}
    assert mapped == tree


def test_the_page_for_extenders_names_files_and_tests_that_exist() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    paths = {path for path in re.findall(r"`([\w./]+/[\w./]+\.(?:py|md))`", page) if not re.search(r"[A-Z]{4}", path)}
    assert len(paths) > 20 and not [path for path in sorted(paths) if not (ROOT / path).is_file()]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in re.findall(r"`(test_\w+)`", page) if f"def {name}(" not in tests]
