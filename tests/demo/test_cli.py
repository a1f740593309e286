"""kws-demo's mistakes and names, and the temporary folder that stays small."""

import os
import time

import pytest

from kws_s5.demo.cli import main, named_models


def test_models_are_offered_under_different_names_without_folders(tone_bundle, tmp_path):
    for folder in ("a/run", "b/run"):
        (tmp_path / folder).mkdir(parents=True)
        tone_bundle.save(tmp_path / folder / "model.safetensors")
    tone_bundle.save(tmp_path / "tones.safetensors")
    given = [str(tmp_path / name) for name in ("a/run", "b/run/model.safetensors", "tones.safetensors")]
    assert list(named_models(given)) == ["run", "run (2)", "tones"]


@pytest.mark.parametrize("arguments", ["no/such/model", "--port 70000", "--seconds 0", "--megabytes nan"])
def test_a_mistake_is_one_line(arguments, capsys):
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error


@pytest.mark.slow
def test_old_files_go_and_a_full_folder_takes_no_uploads(tmp_path):
    gradio = pytest.importorskip("gradio", reason="the demo needs gradio (extra demo)")
    from kws_s5.demo.app import Limits
    from kws_s5.demo.serve import EXAMPLES_FOLDER, Sweeper

    old, new, example = tmp_path / "x" / "old.wav", tmp_path / "y" / "new.wav", tmp_path / EXAMPLES_FOLDER / "a.flac"
    for path in (old, new, example):
        path.parent.mkdir()
        path.write_bytes(b"x" * 1000)
    for path in (old, example):
        os.utime(path, (time.time() - 1000,) * 2)
    page = gradio.Blocks(analytics_enabled=False)
    page.temp_file_sets.append({str(old), str(new)})
    Sweeper(tmp_path, page, Limits(keep_seconds=900)).sweep()
    assert not old.parent.exists() and new.exists() and example.exists()
    assert page.temp_file_sets[-1] == {str(new)}
    assert Sweeper(tmp_path, page, Limits(disk_megabytes=0.0011)).may_upload()
    assert not Sweeper(tmp_path, page, Limits(disk_megabytes=0.0009)).may_upload()
