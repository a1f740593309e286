"""The documentation stays true: what it names exists (files, links, commands, options), the README is short."""

import ast
import contextlib
import dataclasses
import importlib.util
import io
import re
import shlex
import tokenize
import tomllib
from pathlib import Path

import pytest

from kws_s5.config import data, mixers, model, training
from kws_s5.recipes.registry import RECIPES
from kws_s5.recipes.train import parse

ROOT = Path(__file__).parents[1]
ROOMS = ["kws_s5", "recipes", "eval", "demo", "benchmarks", "tests"]
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PATHS = ["/" + path.relative_to(ROOT).as_posix() for path in SOURCES]
HISTORY = "CHANGELOG.md"  # may name what no longer exists
GENERATED = {"docs/gpu.md", "docs/gpu.json"}  # of benchmarks.gpu; nothing has run on a GPU yet
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
README_LIMIT = 8192  # bytes

by_name = {"ids": lambda path: str(path.relative_to(ROOT))}
pages = pytest.mark.parametrize("page", PAGES, **by_name)


def said_in(path: Path) -> str:
    """The docstrings and comments of a source file."""
    text = path.read_text(encoding="utf-8")
    with_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, with_docstring)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*filter(None, docstrings), *(t.string for t in tokens if t.type == tokenize.COMMENT)])


def unknown_files(text: str) -> list[str]:
    names = re.findall(r"(?<![\w./<*-])(?:\.\./)*([\w/]*\w\.py)\b", text)
    return sorted({name for name in names if not any(path.endswith("/" + name) for path in PATHS)})


def unknown_documents(text: str) -> list[str]:
    names = set(re.findall(r"\bdocs/[\w./-]+\.(?:md|png|json)\b", text))
    return sorted(name for name in names - GENERATED if not (ROOT / name).is_file())


@pytest.mark.parametrize("path", SOURCES, **by_name)
def test_files_named_in_docstrings_and_comments_exist(path: Path) -> None:
    said = said_in(path)
    assert not unknown_files(said)
    assert not unknown_documents(said)


@pages
def test_files_named_in_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.name == HISTORY or not unknown_files(text)
    assert not unknown_documents(text)


def anchors(page: Path) -> set[str]:
    """The names by which the headings of a page can be linked, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists() and file.is_relative_to(ROOT), f"{link}: no such file"
        assert not anchor or anchor in anchors(file), f"{link}: no such heading"


def test_every_page_is_linked_from_the_readme_or_from_a_page_that_is() -> None:
    def links(page: Path) -> set[Path]:
        found = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
        return {(page.parent / link).resolve() for link in found if "://" not in link}

    first = ROOT / "README.md"
    reached = {first, *links(first)}
    for _ in PAGES:
        reached |= {link for page in reached for link in links(page)}
    assert {page for page in PAGES if page.parent.name == "docs"} <= reached


@pages
def test_modules_and_recipes_named_in_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8") if page.name != HISTORY else ""
    for module in set(re.findall(r"python3? -m ((?:kws_s5|benchmarks)[\w.]*)", text)):
        assert importlib.util.find_spec(module), module
    for recipe in set(re.findall(r"kws-train ([a-z][\w-]*)", text)):
        assert recipe in RECIPES, f"kws-train {recipe}"
    for command in set(re.findall(r"(?<![\w/.-])kws-[a-z]+\b(?!\.)", text)):
        assert command in SCRIPTS, command


def settings() -> set[str]:
    """The names of all fields of a run's config."""
    classes = [value for module in (data, mixers, model, training) for value in vars(module).values()]
    return {field.name for cls in classes if dataclasses.is_dataclass(cls) for field in dataclasses.fields(cls)}


@pages
def test_options_of_a_run_named_in_pages_exist(page: Path) -> None:
    """--data.root, data.root and the like: every part after the section is a field of a config class."""
    known = settings()
    text = page.read_text(encoding="utf-8")
    if page.name == HISTORY:
        return
    for option in set(re.findall(r"--(?:data|training|model|optim|augment)\.([a-z][\w.-]*)", text)):
        for part in option.rstrip(".-").replace("-", "_").split("."):
            assert part.removeprefix("no_") in known, f"--...{option}"


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Command -> its options, from its own help."""
    found = {}
    for command, target in SCRIPTS.items():
        module, function = target.split(":")
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
            getattr(importlib.import_module(module), function)(["--help"])
        found[command] = set(re.findall(r"--[a-z][a-z-]*", said.getvalue()))
    found["kws-train"] |= {"--help", "--init", "--resume", "--overwrite"}
    return found


def command_lines(page: Path) -> list[list[str]]:
    """The words of every command kws-... in a page, in code blocks and in running text; without comments."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^ *((?:\S+/)?kws-.+)$", text, re.MULTILINE) + re.findall(r"`(kws-[^`]+)`", text)
    parts = [shlex.split(part) for line in lines for part in re.split(r"\s#\s", line)[0].split("&&")]
    return [[words[0].split("/")[-1], *words[1:]] for words in parts if words]


@pages
def test_options_of_commands_named_in_pages_exist(page: Path, options: dict[str, set[str]]) -> None:
    for command, *rest in command_lines(page):
        if command in options:
            own = {word.split("=")[0] for word in rest if re.match(r"--[a-z][a-z-]*(=|$)", word)}
            assert own <= options[command], f"{command} {rest}"


@pages
def test_trainings_named_in_pages_have_a_valid_command_line(page: Path) -> None:
    for command, *rest in command_lines(page):
        if command == "kws-train" and rest and rest[0] in RECIPES and "--help" not in rest:
            parse(rest[0], rest[1:])  # SystemExit: an option that does not exist, or a value it does not take


@pytest.mark.parametrize("path", sorted((ROOT / "kws_s5/config").glob("*.py")), **by_name)
def test_the_help_of_every_option_is_one_line_of_plain_text(path: Path) -> None:
    """tyro would break longer ones in the middle of a sentence."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            for field, said in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr):
                    text = said.value.value
                    assert "\n" not in text and "`" not in text, f"{node.name}.{field.target.id}: {text}"


def test_the_readme_is_two_pages() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= README_LIMIT


def test_the_first_lines_of_the_readme_print_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    monkeypatch.chdir(ROOT)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own page
    assert capsys.readouterr().out == printed
