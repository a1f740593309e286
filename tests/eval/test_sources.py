"""Which clips a model is tested on, and what is said about the others."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from kws_s5.audio.files import save_wav
from kws_s5.config import PendulumData
from kws_s5.data.keywords.speech_commands import LABELS_12
from kws_s5.errors import UserError
from kws_s5.eval.sources import from_folder, from_run


def beep(path, rate=16000):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_wav(path, np.sin(np.arange(800) / 5).astype(np.float32) / 2, rate)


def classes(source):
    return [int(source.dataset[i].y) for i in range(len(source.dataset))]


def test_the_run_is_tested_on_the_clips_it_was_not_trained_on(folder, make_bundle):
    bundle = make_bundle(folder)
    parts = {split: from_run(bundle, split=split) for split in ("train", "validation", "test", "all")}
    sizes = {split: len(source.dataset) for split, source in parts.items()}
    assert sizes["train"] + sizes["validation"] + sizes["test"] == sizes["all"] == 24 and sizes["test"] > 0
    assert parts["test"].own_rates == (16000.0,) and "test split" in parts["test"].description
    assert not set(parts["test"].dataset.ids) & set(parts["train"].dataset.ids)


def test_a_plain_folder_is_tested_whole_at_its_own_rates(folder, make_bundle):
    beep(folder / "low" / "narrow.wav", 8000)
    source = from_folder(make_bundle(folder), folder)
    assert len(source.dataset) == 25 and source.own_rates == (8000.0, 16000.0)
    narrow = [example for example in (source.dataset[i] for i in range(25)) if example.rate == 8000]
    assert len(narrow) == 1 and narrow[0].x.shape == (800, 1)  # nothing is resampled


def test_a_folder_with_lists_is_tested_on_its_test_list(folder, make_bundle):
    (folder / "testing_list.txt").write_text("low/00000003_nohash_0.wav\nhigh/00000005_nohash_0.wav\n")
    (folder / "validation_list.txt").write_text("low/00000002_nohash_0.wav\n")
    bundle = make_bundle(folder)
    tested = sorted(from_folder(bundle, folder).dataset.ids)
    assert tested == ["high/00000005_nohash_0.wav", "low/00000003_nohash_0.wav"]
    assert len(from_folder(bundle, folder, split="validation").dataset) == 1
    assert len(from_folder(bundle, folder, split="all").dataset) == 24


def test_words_that_the_model_does_not_know_are_left_out_and_told(folder, make_bundle):
    bundle = make_bundle(folder)
    for i in range(3):
        beep(folder / "other" / f"{i}.wav")
    source = from_folder(bundle, folder)
    assert len(source.dataset) == 24 and any("other (3)" in line for line in source.remarks)


def test_words_that_the_model_does_not_know_are_unknown_where_it_has_that_class(folder, make_bundle):
    bundle = make_bundle(folder, labels=("high", "low", "_unknown_"))
    beep(folder / "other" / "a.wav")
    source = from_folder(bundle, folder)
    assert classes(source) == [0] * 12 + [1] * 12 + [2] and source.remarks == ("counted as _unknown_: other (1)",)


def test_unreadable_files_are_left_out_and_counted(folder, make_bundle):
    (folder / "low" / "broken.wav").write_bytes(b"RIFF")
    source = from_folder(make_bundle(folder), folder)
    assert len(source.dataset) == 24 and "left out, unreadable: 1 files" in source.remarks


def test_the_official_test_archive_keeps_its_labels(tmp_path, make_bundle):
    for label in LABELS_12:
        beep(tmp_path / "archive" / label / "a.wav.wav" if label == "yes" else tmp_path / "archive" / label / "a.wav")
    source = from_folder(make_bundle(tmp_path, labels=LABELS_12), tmp_path / "archive")
    assert sorted(classes(source)) == list(range(12)) and "official 12-class test archive" in source.description


def test_mistakes_about_the_data_are_one_line_with_a_way_out(folder, make_bundle, tmp_path):
    bundle = make_bundle(folder)
    with pytest.raises(UserError, match="no such folder"):
        from_folder(bundle, tmp_path / "nowhere")
    for word in ("other", "more"):
        beep(tmp_path / "others" / word / "a.wav")
    with pytest.raises(UserError, match="model"):
        from_folder(bundle, tmp_path / "others")
    bundle.config = replace(bundle.config, data=PendulumData())
    with pytest.raises(UserError, match="models of sound"):
        from_folder(bundle, folder)


def test_a_run_whose_folder_is_gone_or_changed_says_how_to_go_on(folder, make_bundle):
    bundle = make_bundle(folder)
    (folder / "third").mkdir()
    for i in range(12):
        shutil.copy(folder / "low" / f"{i:08x}_nohash_0.wav", folder / "third")
    with pytest.raises(UserError, match=r"not the model's \(differing: third\).*--data DIR"):
        from_run(bundle)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="no such folder.*--data DIR"):
        from_run(bundle)


def test_a_model_is_tested_without_the_background_of_its_training(folder, make_bundle):
    bundle = make_bundle(folder)
    before = from_run(bundle).dataset.ids
    bundle.config = replace(bundle.config, data=replace(bundle.config.data, background="gone"))
    assert from_run(bundle).dataset.ids == before
    assert len(from_folder(bundle, folder).dataset)
