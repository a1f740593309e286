"""Predictions for a user's series: in the user's units, for rows that were never observed, without target columns."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from kws_s5.config import RunConfig
from kws_s5.data.series import example as series_example
from kws_s5.data.series.csv_file import read_table
from kws_s5.eval import series as command
from kws_s5.recipes.series import series
from kws_s5.training.run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunConfig:
    """Two epochs on the example, by the recipe."""
    folder = tmp_path_factory.mktemp("series")
    recipe = series()
    config = replace(
        recipe,
        data=replace(recipe.data, cache=str(folder)),
        training=replace(recipe.training, epochs=2, out=str(folder / "run"), progress=False),
    )
    train(config)
    return config


def rows(path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_recipe_learns_and_its_predictions_are_in_the_users_units(run: RunConfig, tmp_path, capsys) -> None:
    (tmp_path / "new.csv").write_text(series_example.text())
    out = tmp_path / "out.csv"
    assert command.main([run.training.out, str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    assert "velocity: root mean square error" in capsys.readouterr().out
    table = read_table(tmp_path / "new.csv", series_example.TARGETS)
    found = rows(out)
    assert len(found) == 80 * 40 and list(found[0]) == [
        "series",
        "time",
        "position",
        "position_std",
        "velocity",
        "velocity_std",
    ]
    truth = np.concatenate([s.targets for s in table.series])
    predicted = np.array([[float(row["position"]), float(row["velocity"])] for row in found])
    error, spread = np.sqrt(((predicted - truth) ** 2).mean(0)), truth.std(0)
    assert (error < 0.98 * spread).all()  # two epochs are enough to be better than a guess
    assert all(float(row["velocity_std"]) > 0 for row in found)


def test_files_without_targets_and_with_questions_are_answered(run: RunConfig, tmp_path, capsys) -> None:
    (tmp_path / "new.csv").write_text("spring,seconds,reading\nx,0,0.5\nx,0.2,\nx,0.4,0.1\ny,1,0.3\n")
    out = tmp_path / "out.csv"
    assert command.main([run.training.out, str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    assert "error" not in capsys.readouterr().out
    assert [row["series"] + row["time"] for row in rows(out)] == ["x0.0", "x0.2", "x0.4", "y1.0"]


def test_other_columns_are_refused(run: RunConfig, tmp_path, capsys) -> None:
    (tmp_path / "new.csv").write_text("spring,seconds,level\nx,0,0.5\n")
    assert command.main([run.training.out, str(tmp_path / "new.csv")]) == 2
    assert "this model was trained on reading" in capsys.readouterr().err


def test_predictions_never_replace_the_data(tmp_path, capsys) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("spring,seconds,reading\nx,0,0.5\n")
    assert command.main(["model", str(path), "--out", str(path)]) == 2
    assert "would replace the data" in capsys.readouterr().err and path.read_text().startswith("spring")
