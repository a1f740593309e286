"""From a folder of words to data sets: classes, _unknown_, _silence_, rates, lengths, and what is left out."""

import hashlib
import json
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from kws_s5.audio.files import load_audio
from kws_s5.config import KeywordData
from kws_s5.data.batch import collate
from kws_s5.data.build import build
from kws_s5.data.keywords.classes import NOISE_SPANS, choose, labels, silence_cuts
from kws_s5.data.keywords.clips import Clips
from kws_s5.data.keywords.reader import evaluation_set
from kws_s5.data.keywords.speech_commands import WORDS_35
from kws_s5.data.splits import Splits
from kws_s5.errors import UserError

RATES = (8000, 16000, 44100)


def record(path: Path, seconds: float, rate: int, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(seed).uniform(-0.5, 0.5, round(seconds * rate))
    soundfile.write(path, x, rate)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "words"
    for w, word in enumerate(("yes", "no", "cat", "dog")):
        for i in range(40):
            record(root / word / f"s{i:02}_nohash_0.wav", 0.02 + 0.002 * i, RATES[i % 3], 100 * w + i)
    for i in range(2):
        record(root / "_background_noise_" / f"n{i}.wav", 2.0 + i, RATES[i], 900 + i)
    return root


def made(root: Path, **options: object) -> Splits:
    return build(KeywordData(root=str(root), cache=str(root.parent / "cache"), **options))


def ids(splits: Splits) -> dict[str, list[str]]:
    return {name: getattr(splits, name).ids for name in ("train", "validation", "test")}


def test_examples_are_the_recordings_at_their_own_rate_and_length(root: Path) -> None:
    splits = made(root, seconds=0.0, pad=False)
    assert splits.labels == ("cat", "dog", "no", "yes") and splits.n_outputs == 4 and splits.n_inputs == 1
    for clips in (splits.train, splits.validation, splits.test):
        for i, id in enumerate(clips.ids):
            example, found = clips[i], load_audio(root / id)
            assert example.x.dtype == torch.float32 and example.x.shape == (len(found.waveform), 1)
            assert np.array_equal(example.x[:, 0].numpy(), found.waveform) and example.rate == found.rate
            assert splits.labels[int(example.y)] == id.split("/")[0]
    everything = sum(ids(splits).values(), [])
    assert len(everything) == len(set(everything)) == 160
    batch = collate([splits.train[i] for i in range(6)])
    assert batch.x.shape[::2] == (6, 1) and batch.rates is not None and len(set(batch.rates.tolist())) == 3


def test_seconds_are_counted_at_each_clips_rate(root: Path) -> None:
    splits = made(root, seconds=0.05)
    lengths = {(splits.train[i].rate, len(splits.train[i].x)) for i in range(len(splits.train))}
    assert lengths == {(8000.0, 400), (16000.0, 800), (44100.0, 2205)}
    assert [len(splits.train[i].x) for i in range(9)] == splits.train.lengths[:9].tolist()
    whole = made(root, seconds=0.0, pad=False).train
    for i in range(len(whole)):
        short, long = whole[i].x, splits.train[i].x
        if len(short) < len(long):  # padded with zeros at the end
            assert torch.equal(long[: len(short)], short) and not long[len(short) :].any()


def test_longer_clips_are_cut_at_random_in_training_and_in_the_middle_otherwise(root: Path) -> None:
    a, b, whole = (made(root, seconds=s, pad=False) for s in (0.03, 0.03, 0.0))
    for splits, epoch in ((a, 3), (b, 3)):
        splits.train.set_epoch(epoch)
    i = int(np.argmax(whole.train.lengths / whole.train.rates))
    assert torch.equal(a.train[i].x, b.train[i].x)  # a function of seed, epoch and index alone
    seen = set()
    for epoch in range(8):
        a.train.set_epoch(epoch)
        x, full = a.train[i].x, whole.train[i].x
        starts = [k for k in range(len(full) - len(x) + 1) if torch.equal(full[k : k + len(x)], x)]
        seen.add(starts[0])
    assert len(seen) > 4
    j = int(np.argmax(whole.test.lengths / whole.test.rates))
    x, full = a.test[j].x, whole.test[j].x
    start = (len(full) - len(x)) // 2
    assert torch.equal(x, full[start : start + len(x)])


def test_the_12_class_layout_has_words_then_unknown_then_silence(root: Path) -> None:
    splits = made(root, words=("yes", "no"), unknown=True, unknown_share=0.2, silence=True, silence_share=0.1)
    assert splits.labels == ("yes", "no", "_unknown_", "_silence_")
    for name, clips in splits.report["clips"].items():
        n = clips["yes"] + clips["no"]
        assert clips["_unknown_"] == round(0.2 * n) and clips["_silence_"] == max(1, round(0.1 * n)), name
    targets = splits.train.targets
    unknown = [id for id, y in zip(splits.train.ids, targets, strict=True) if y == 2]
    assert all(id.split("/")[0] in ("cat", "dog") for id in unknown)
    assert made(root, words=("yes", "no"), unknown=True, unknown_share=1.0).report["clips"]["train"][
        "_unknown_"
    ] == sum(made(root).report["clips"]["train"][word] for word in ("cat", "dog"))


def test_choices_depend_on_the_seed_alone_and_are_written_down(root: Path) -> None:
    options = {"words": ("yes", "no"), "unknown": True, "unknown_share": 0.3, "silence": True}
    first, again, other = (made(root, seed=seed, **options) for seed in (0, 0, 1))
    assert ids(first) == ids(again) != ids(other)
    record = json.loads(Path(first.report["choices"]).read_text())
    assert record["labels"] == ["yes", "no", "_unknown_", "_silence_"] and record["seed"] == 0
    assert sorted(sum(record["test"].values(), [])) == sorted(first.test.ids)


def test_a_larger_choice_contains_the_smaller_one_and_new_clips_move_few() -> None:
    names = [f"cat/{i}.wav" for i in range(200)]
    assert set(choose(names, 20, 0)) <= set(choose(names, 50, 0))
    assert len(set(choose(names, 50, 0)) & set(choose([*names, "cat/new.wav"], 50, 0))) >= 49


def test_silence_and_noise_of_training_are_never_heard_in_validation_or_test(root: Path) -> None:
    splits = made(root, silence=True, silence_share=1.0, seconds=0.2)
    spans = {}
    for split, clips in (("train", splits.train), ("validation", splits.validation), ("test", splits.test)):
        for item in (item for item in clips.items if item.target == 4):
            assert item.stop - item.start == round(0.2 * clips.store.index["rate"][item.row]) and 0 <= item.gain < 1
            length = clips.store.index["length"][item.row]
            first, last = NOISE_SPANS[split]
            assert round(first * length) <= item.start and item.stop <= round(last * length)
            spans.setdefault(split, set()).add((item.row, item.start, item.gain))
    assert len(spans["train"]) > 50  # and they differ from each other
    for (noise, rate), seconds, expected in zip(splits.noises, (2.0, 3.0), RATES, strict=False):
        assert rate == expected and noise.dtype == torch.float32 and len(noise) == round(0.6 * seconds * rate)


def test_without_noise_recordings_silence_is_digital_and_said_to_be(tmp_path: Path) -> None:
    for word in ("yes", "no"):
        for i in range(8):
            record(tmp_path / "words" / word / f"{i}.wav", 0.02, 8000, i)
    splits = made(tmp_path / "words", silence=True, rate=8000.0)
    recorded = [i for i, id in enumerate(splits.train.ids) if not id.startswith("synthetic")]
    silent = splits.train[recorded[-1]]
    assert int(silent.y) == 2 and silent.rate == 8000.0 and len(silent.x) == 8000 and not silent.x.any()
    assert any("digital silence" in note for note in splits.report["notes"]) and splits.noises == []


def test_folders_of_unknown_and_silence_recordings_are_taken_whole(tmp_path: Path) -> None:
    for word, n in (("yes", 20), ("no", 20), ("_unknown_", 33), ("_silence_", 9)):
        for i in range(n):
            record(tmp_path / "words" / word / f"{word}{i:02}_nohash_0.wav", 0.02, 8000, i)
    splits = made(tmp_path / "words", unknown=True, unknown_share=0.0, silence=True)
    totals = {label: sum(clips[label] for clips in splits.report["clips"].values()) for label in splits.labels}
    assert totals == {"no": 20, "yes": 20, "_unknown_": 33, "_silence_": 9}


def test_words_keep_their_order_and_the_official_set_its_own() -> None:
    config = KeywordData(root="words", words=("yes", "no"))
    assert labels(config, ["cat", "no", "yes"]) == ("yes", "no")
    assert labels(KeywordData(), sorted(WORDS_35), WORDS_35) == WORDS_35
    assert labels(KeywordData(), ["b", "a"], WORDS_35) == ("a", "b")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"words": ("yes", "maybe")}, "maybe"),
        ({"words": ("yes",)}, "one class"),
        ({"unknown": True}, "other words"),
    ],
)
def test_impossible_classes_are_refused(root: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        made(root, **options)


def test_unreadable_clips_are_skipped_aloud_or_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("yes", "no"):
        for i in range(12):
            record(tmp_path / "words" / word / f"{i}.wav", 0.02, 8000, i)
    (tmp_path / "words" / "yes" / "3.wav").write_bytes(b"RIFF?")
    splits = made(tmp_path / "words")
    assert "1 of 24 clips skipped" in capsys.readouterr().err and list(splits.report["unreadable"]) == ["yes/3.wav"]
    assert "yes/3.wav" not in sum(ids(splits).values(), []) and len(sum(ids(splits).values(), [])) == 23
    with pytest.raises(UserError, match=r"on_bad_file is fail.*3\.wav"):
        made(tmp_path / "words", on_bad_file="fail")


def test_a_split_without_clips_is_refused_unless_it_was_asked_for(tmp_path: Path) -> None:
    for word in ("yes", "no"):
        for i in range(2):
            record(tmp_path / "words" / word / f"{i}.wav", 0.02, 8000, i)
    with pytest.raises(UserError, match="no clips for validation"):
        made(tmp_path / "words")
    splits = made(tmp_path / "words", validation_percent=0.0, test_percent=0.0)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (4, 0, 0)


def test_any_folder_becomes_one_test_set_for_a_model(root: Path) -> None:
    config = KeywordData(root=str(root), cache=str(root.parent / "cache"), seconds=0.05)
    clips, report = evaluation_set(config, ("yes", "cat", "_unknown_"))
    assert report["clips"] == {"yes": 40, "cat": 40, "_unknown_": 80} and len(clips) == 160
    clips, report = evaluation_set(config, ("no", "yes"))
    assert report["clips"] == {"no": 40, "yes": 40} and report["left_out"] == {"cat": 40, "dog": 40}
    with pytest.raises(UserError, match="no folder is named"):
        evaluation_set(config, ("up", "down"))


def test_reading_an_example_takes_microseconds_and_sets_travel_to_workers(root: Path) -> None:
    clips: Clips = made(root).train  # padded to a second: up to 44,100 samples
    start = time.perf_counter()
    for _ in range(5):
        for i in range(len(clips)):
            clips[i]
    assert (time.perf_counter() - start) / (5 * len(clips)) < 1e-3  # about 3e-5; room for a busy machine
    copy = pickle.loads(pickle.dumps(clips))
    assert torch.equal(copy[7].x, clips[7].x) and len(pickle.dumps(clips)) < 50_000
    with pytest.raises(IndexError):
        clips[len(clips)]


def test_report_and_note_are_plain_and_name_no_path(root: Path) -> None:
    splits = made(root)
    assert json.loads(json.dumps(splits.report)) == splits.report
    assert splits.report["rates"].keys() == {"8000", "16000", "44100"} and splits.report["folder"] == "words"
    assert "words" in splits.note and str(root) not in splits.note and "\n" not in splits.note


def test_silence_is_drawn_as_it_was_when_splits_had_other_names() -> None:
    """Runs of then go on, and are evaluated, with the same clips."""
    for split, old, first in (("train", "training", 0), ("test", "testing", 800)):
        (cut,) = silence_cuts(1, [("n.wav", 1000, 100.0)], split=split, seconds=1.0, rate=16000.0, seed=3)
        unit = int(hashlib.sha1(f"3 {old} 0 start".encode()).hexdigest()[:12], 16) / 2**48
        assert cut.start == first + int(unit * (501 if split == "train" else 101)) and cut.stop == cut.start + 100
