"""kws-train RECIPE [--section.field value ...] [--resume | --overwrite]: the recipe's config is the command line.

kws-train quickstart
kws-train words --data.root my_recordings --init runs/kws12
kws-train kws12 --help          every option of a recipe with its meaning and default
"""

import difflib
import shlex
import sys
from dataclasses import dataclass, fields, replace
from typing import Annotated

from kws_s5.cli import guarded
from kws_s5.config import MIXERS, RunConfig
from kws_s5.errors import UserError
from kws_s5.recipes.registry import RECIPES, help_line

OTHER_NAMES = {
    "--init": "--training.init",
    "--data.testing-percent": "--data.test-percent",
    "--data.testing_percent": "--data.test-percent",
}
USAGE = "usage: kws-train RECIPE [--section.field value ...] [--init MODEL] [--resume | --overwrite]"


@dataclass(frozen=True)
class Run:
    """What a command line means."""

    config: RunConfig
    resume: bool = False
    overwrite: bool = False


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status (0 done, 2 a mistake of the user, 130 stopped)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return guarded(lambda: _main(argv))
    except SystemExit as end:  # tyro has printed help, or what is wrong with an option
        return int(end.code or 0)


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(overview())
        return 0 if argv else 2
    name, options = argv[0], argv[1:]
    if name not in RECIPES:
        raise UserError(f"{name}: no such recipe; {suggestion(name)}")
    run = parse(name, options)
    if run.resume and run.overwrite:
        raise UserError("--resume and --overwrite exclude each other")
    from kws_s5.training.run import train  # slow to import; help and mistakes come at once

    train(run.config, resume=run.resume, overwrite=run.overwrite, command=shlex.join(["kws-train", *argv]))
    return 0


def parse(name: str, options: list[str]) -> Run:
    """The recipe's config with the options applied; tyro prints help or a mistake and exits (SystemExit)."""
    import tyro

    @dataclass(frozen=True)
    class Options:
        config: Annotated[RunConfig, tyro.conf.arg(name="")]  # its sections stand at the top level
        resume: tyro.conf.FlagCreatePairsOff[bool] = False
        """Continue the run in --training.out where it stopped."""
        overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
        """Replace the run in --training.out; its model stays, as model.previous.safetensors, until the new run ends."""

    parts = [_todays(option).partition("=") for option in options]
    options = [OTHER_NAMES.get(name, name) + mark + value for name, mark, value in parts]
    recipe = RECIPES[name]
    default, options = _with_mixer(recipe(), options)
    try:
        given = tyro.cli(
            Options,
            prog=f"kws-train {name}",
            args=options,
            default=Options(default),
            description=f"{help_line(recipe)} --model.mixer {'|'.join(MIXERS)} takes another mixer.",
            config=(tyro.conf.AvoidSubcommands,),
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    return Run(given.config, given.resume, given.overwrite)


def _todays(option: str) -> str:
    """--model.ssm.X, the options of S5 before there were other mixers, as --model.mixer.X."""
    return "--model.mixer." + option.removeprefix("--model.ssm.") if option.startswith("--model.ssm.") else option


def _with_mixer(config: RunConfig, options: list[str]) -> tuple[RunConfig, list[str]]:
    """The recipe with the mixer that ``--model.mixer NAME`` asks for, and the other options.

    Its options have their defaults; those that the recipe's own mixer has too (dt_min, dt_max, ...) keep its values.
    """
    rest, names = [], []
    given = iter(options)
    for option in given:
        key, _, value = option.partition("=")
        if key == "--model.mixer":
            names.append(value or next(given, ""))
        else:
            rest.append(option)
    if not names:
        return config, rest
    if names[-1] not in MIXERS:
        raise UserError(f"--model.mixer {names[-1]}: must be one of {', '.join(MIXERS)}")
    old, kind = config.model.mixer, MIXERS[names[-1]]
    if isinstance(old, kind):
        return config, rest
    shared = {f.name: getattr(old, f.name) for f in fields(kind) if hasattr(old, f.name)}
    return replace(config, model=replace(config.model, mixer=kind(**shared))), rest


def overview() -> str:
    """Usage and one line a recipe."""
    width = max(map(len, RECIPES))
    lines = [f"  {name:<{width}}  {help_line(recipe)}" for name, recipe in RECIPES.items()]
    return "\n".join([USAGE, "", "recipes:", *lines, "", "kws-train RECIPE --help lists every option of a recipe."])


def suggestion(name: str) -> str:
    """What an unknown recipe may have meant."""
    near = difflib.get_close_matches(name, RECIPES, n=2)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(RECIPES)}"
