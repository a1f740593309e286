"""kws-eval as its users call it."""

import csv
import json

import numpy as np
import pytest
import torch

from kws_s5.audio.files import save_wav
from kws_s5.eval.cli import main


@pytest.fixture
def run(folder, make_bundle, tmp_path):
    """A run folder with a model in it."""
    make_bundle(folder).save(tmp_path / "run" / "model.safetensors")
    return tmp_path / "run"


def report_of(capsys, *arguments):
    assert main([str(a) for a in arguments] + ["--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_default_report_has_both_rates_all_protocols_and_all_files(run, capsys):
    assert main([str(run)]) == 0
    text = capsys.readouterr().out
    for words in ("decimate, rescale", "soxr HQ, rescale", "no rescale", "soxr HQ back", "16000", "8000"):
        assert words in text
    assert sorted(p.name for p in (run / "eval").iterdir()) == [
        "accuracy_by_rate.png",
        "confusion.png",
        "predictions.csv",
        "results.json",
    ]
    report = json.loads((run / "eval" / "results.json").read_text())
    assert [(row["rate"], row["step_rescale"]) for row in report["rows"]] == [
        (16000, 1.0),
        (8000, 2.0),
        (8000, 2.0),
        (8000, 1.0),
        (8000, 1.0),
    ]
    for row in report["rows"]:
        assert 0 <= row["low"] <= row["accuracy"] <= row["high"] <= 1 and row["n"] == sum(map(sum, row["confusion"]))
        assert [entry["label"] for entry in row["per_class"]] == report["labels"] == ["high", "low"]
    assert report["resampler"] == "soxr HQ" and "no filter" in report["decimation"]
    assert "validation" in report["selection"]


def test_every_prediction_can_be_looked_up_by_its_file(run, capsys):
    report = report_of(capsys, run)
    with open(run / "eval" / "predictions.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert all(line["clip"].startswith(line["true"] + "/") for line in lines) and len(lines) == report["rows"][0]["n"]
    for row in report["rows"]:
        assert sum(line[row["name"]] == line["true"] for line in lines) == row["n_correct"]


def test_recordings_at_8_khz_just_work(run, folder, tmp_path, capsys):
    for word in ("low", "high"):
        (tmp_path / "phone" / word).mkdir(parents=True)
        for i in range(3):
            tone = np.sin(np.arange(800) * (i + 1) / 9).astype(np.float32)
            save_wav(tmp_path / "phone" / word / f"{i}.wav", tone, 8000)
    report = report_of(capsys, run, "--data", tmp_path / "phone", "--out", tmp_path / "out")
    assert [(row["rate"], row["how"], row["treatment"]) for row in report["rows"]] == [
        (8000, "native", "rescale"),
        (8000, "native", "none"),
        (8000, "native", "resample_back"),
    ]
    assert report["rows"][0]["n"] == 6 and (tmp_path / "out" / "results.json").is_file()
    assert report_of(capsys, run, tmp_path / "phone") == report  # by position; its place is beside the run's report
    assert (run / "eval-phone" / "results.json").is_file()


def test_options_choose_the_rows(run, tmp_path, capsys):
    report = report_of(
        capsys,
        run,
        "--rate",
        8000,
        "--resampler",
        "decimate",
        "--rescale",
        "--interpolation",
        "hold",
        "linear",
        "--mask-modes",
        "--out",
        tmp_path / "a",
    )
    assert [(row["interpolation"], row["mask_modes"]) for row in report["rows"]] == [
        ("hold", False),
        ("linear", False),
        ("hold", True),
        ("linear", True),
    ]
    report = report_of(capsys, run, "--rate", 8000, "--no-rescale", "--out", tmp_path / "b")
    assert [(row["how"], row["treatment"]) for row in report["rows"]] == [("decimate", "none"), ("soxr", "none")]


def test_noise_rows_stand_beside_the_clean_ones_and_are_drawn(run, tmp_path, capsys):
    report = report_of(capsys, run, "--rate", 16000, "--snr", 10, 0, "--noise", "pink", "--out", tmp_path / "a")
    assert [(row["snr"], row["noise"]) for row in report["rows"]] == [(None, None), (10, "pink"), (0, "pink")]
    assert (tmp_path / "a" / "accuracy_by_snr.png").is_file()
    again = report_of(capsys, run, "--rate", 16000, "--snr", 10, 0, "--noise", "pink", "--out", tmp_path / "b")
    assert again == report


def test_a_new_report_leaves_no_plot_of_an_older_one(run, tmp_path, capsys):
    report_of(capsys, run, "--snr", 0, "--out", tmp_path / "a")
    report_of(capsys, run, "--rate", 16000, "--out", tmp_path / "a")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["confusion.png", "predictions.csv", "results.json"]


def test_sound_files_are_listened_to_with_the_front_end_of_training(run, folder, capsys):
    file = folder / "low" / "00000000_nohash_0.wav"
    assert main([str(run), str(file)]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{file} (16000 Hz, 0.10 s): ") and "low" in line and "high" in line
    heard = report_of(capsys, run, file)
    assert sum(heard[str(file)].values()) == pytest.approx(1.0, abs=1e-5)


def test_long_sound_files_are_not_taken_for_heard_whole(run, tmp_path, capsys):
    save_wav(tmp_path / "long.wav", np.zeros(32000), 16000)
    assert main([str(run), str(tmp_path / "long.wav")]) == 0
    error = capsys.readouterr().err
    assert "of 2.00 s were listened to; kws-scan" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["nowhere"], "nowhere"),
        (["{run}", "--data", "nowhere"], "no such folder"),
        (["{run}", "--rate", "11025", "--resampler", "decimate"], "--resampler soxr"),
        (["{run}", "--snr", "0", "--noise", "brown"], "white, pink or a folder"),
        (["{run}", "--rate", "-5"], "rate"),
        (["{run}", "--rate", "0"], "--rate"),
        (["{run}", "--snr", "0", "--seed", "-1"], "--seed"),
        (["{run}", "--out", "{run}/model.safetensors"], "is a file; name a folder"),
        (["{run}", "no.wav"], "no.wav"),
    ],
)
def test_mistakes_are_one_line_and_status_2(run, capsys, arguments, words):
    assert main([argument.format(run=run) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.strip().count("\n") == 0 and "Traceback" not in error


def test_the_report_names_the_model_as_it_was_given(run, folder, capsys):
    assert main([str(run), "--rate", "16000"]) == 0
    assert f"{run} (tiny), trained at 16000 Hz" in capsys.readouterr().out


@pytest.mark.parametrize("what", [["{run}"], ["{run}", "{file}"], ["{run}", "--stream"]])
def test_a_model_that_gives_no_numbers_is_one_line_and_status_2(run, folder, make_bundle, capsys, what):
    sick = make_bundle(folder)
    with torch.no_grad():
        for layer in (sick.model.front.encoder, sick.model.head.decoder):
            layer.weight.fill_(3e38)
    sick.save(run / "model.safetensors")
    file = folder / "low" / "00000000_nohash_0.wav"
    assert main([argument.format(run=run, file=file) for argument in what]) == 2
    error = capsys.readouterr().err
    assert "NaN or infinity instead of scores" in error and error.strip().count("\n") == 0


def test_help_teaches_by_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0 and "kws-eval runs/quickstart --data my_recordings" in text and "--no-rescale" in text
