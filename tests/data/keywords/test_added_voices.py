"""Synthetic voices beside recordings: in training only, every word by every voice, everything else as it was."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from kws_s5.config import KeywordData
from kws_s5.data.build import build
from kws_s5.data.synthetic.espeak import speak
from kws_s5.data.synthetic.near_misses import EACH
from kws_s5.data.synthetic.noise import N_NOISES
from kws_s5.data.synthetic.talk import SENTENCES
from kws_s5.data.synthetic.words import FILLERS
from kws_s5.errors import UserError

pytest.importorskip("espeakng_loader")
VOICES = {"added_voices": 4, "synthetic_takes": 2}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("added") / "mine"
    for w, word in enumerate(("lights_on", "stop", "other")):
        (root / word).mkdir(parents=True)
        for i in range(8):
            sound = np.random.default_rng(100 * w + i).uniform(-0.5, 0.5, 4000)
            soundfile.write(root / word / f"s{i}_nohash_0.wav", sound, 8000)
    for name, speaker in (("validation", 6), ("testing", 7)):
        (root / f"{name}_list.txt").write_text(
            "".join(f"{word}/s{speaker}_nohash_0.wav\n" for word in ("lights_on", "stop", "other"))
        )
    return root


def config(root: Path, **options: object) -> KeywordData:
    return KeywordData(root=str(root), cache=str(root.parent / "cache"), words=("lights_on", "stop"), **options)


def test_every_voice_says_every_word_in_training_only(root: Path) -> None:
    plain, more = build(config(root)), build(config(root, **VOICES))
    assert more.labels == plain.labels and more.validation.ids == plain.validation.ids
    assert more.test.ids == plain.test.ids and more.train.ids[: len(plain.train)] == plain.train.ids
    added = more.train.ids[len(plain.train) :]
    assert len(added) == len(set(added)) == 4 * 2 * 2 and all(id.startswith("synthetic: ") for id in added)
    for i in range(len(plain.train), len(more.train)):
        word, name = more.train.ids[i].removeprefix("synthetic: ").split("/")
        assert more.labels[more.train.targets[i]] == word and more.train[i].rate == 16000.0
        assert more.train[i].x.abs().max() > 0.005, name
    assert "16 of them synthetic)" in more.note and any("16 of the training" in n for n in more.report["notes"])
    choices = json.loads(Path(more.report["choices"]).read_text())
    assert sum(id.startswith("synthetic: ") for ids in choices["train"].values() for id in ids) == 16


def test_an_underscore_is_read_as_a_space() -> None:
    assert np.array_equal(speak("turn_left")[0], speak("turn left")[0])


def test_other_words_of_the_folder_are_unknown_when_that_is_a_class(root: Path) -> None:
    splits = build(config(root, unknown=True, unknown_share=1.0, **VOICES))
    words = {
        id.split("/")[0]
        for id, y in zip(splits.train.ids, splits.train.targets, strict=True)
        if id.startswith("synthetic") and splits.labels[y] == "_unknown_"
    }
    assert words == {"synthetic: other"}


def test_without_other_words_some_of_our_own_stand_for_unknown(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for word, name in (("lights_on", "lights_on"), ("stop", "stop"), ("other", "_unknown_")):
        (tmp_path / "mine" / name).symlink_to(root / word)
    splits = build(config(tmp_path / "mine", unknown=True, unknown_share=1.0, **VOICES))
    counts = Counter(id.split("/")[0] for id in splits.train.ids if id.startswith("synthetic"))
    assert set(counts) == {f"synthetic: {word}" for word in ("lights_on", "stop", *FILLERS)}
    assert "_silence_" not in splits.labels


def test_people_talk_as_unknown_in_training_only(root: Path, tmp_path: Path) -> None:
    plain = build(config(root, unknown=True, unknown_share=1.0))
    more = build(config(root, unknown=True, unknown_share=1.0, added_talk=3))
    added = more.train.ids[len(plain.train) :]
    assert more.test.ids == plain.test.ids and len(added) == 18 and all(id.startswith("synthetic: _un") for id in added)
    assert {more.labels[y] for y in more.train.targets[len(plain.train) :]} == {"_unknown_"}
    more.train.set_epoch(1)
    first = [more.train[i].x for i in range(len(plain.train), len(more.train))]
    more.train.set_epoch(2)  # longer than a second: other windows in every epoch
    assert not any(np.array_equal(a, more.train[i].x) for i, a in enumerate(first, len(plain.train)))
    both = build(config(root, unknown=True, unknown_share=1.0, added_talk=3, **VOICES))
    assert len(both.train) == len(plain.train) + 18 + 4 * 2 * 3 and "42 of them synthetic" in both.note


def test_talk_alone_can_be_the_class_unknown(root: Path, tmp_path: Path) -> None:
    for word in ("lights_on", "stop"):
        (tmp_path / word).symlink_to(root / word)
    splits = build(config(tmp_path, unknown=True, added_talk=3))
    assert splits.labels == ("lights_on", "stop", "_unknown_")
    assert Counter(splits.train.targets.tolist())[2] == 18


def test_other_accents_sound_different(root: Path) -> None:
    english, german = (build(config(root, accents=accents, **VOICES)).train for accents in ((), ("de",)))
    assert len(english) == len(german) and not any(
        np.array_equal(english[i].x.numpy(), german[i].x.numpy()) for i in range(len(english) - 16, len(english))
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"added_voices": 2}, "3 to"),
        ({"added_voices": 10**6}, "at most"),
        ({"added_voices": 4, "accents": ("xx-zz",)}, "xx-zz"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(root: Path, options: dict, told: str) -> None:
    with pytest.raises(UserError, match=told) as error:
        build(config(root, **options))
    assert "\n" not in str(error.value)


def test_without_a_recorded_room_noise_stands_for_silence_in_training(root: Path) -> None:
    splits = build(config(root, silence=True))
    made = [i for i, id in enumerate(splits.train.ids) if id.startswith("synthetic: _silence_/")]
    assert len(made) == N_NOISES and {splits.labels[splits.train.targets[i]] for i in made} == {"_silence_"}
    levels = [20 * np.log10(splits.train[i].x.numpy().std() + 1e-9) for i in made]
    assert -80 < min(levels) < -55 and -40 < max(levels) < -15
    assert not any(id.startswith("synthetic") for id in splits.validation.ids + splits.test.ids)
    assert any("made-up noise" in note for note in splits.report["notes"])


@pytest.mark.parametrize(
    ("words", "options", "told"),
    [
        (("\u662f", "stop"), {}, "cannot be read in English"),
        (("two", "too"), {}, "sound the same"),
        (("two", "stop"), {"rate": 500.0}, "2,000"),
        (("two", "stop"), {"accents": ("de", "de")}, "repetitions"),
    ],
)
def test_words_that_cannot_be_taught_by_voices_are_refused(
    root: Path, tmp_path: Path, words: tuple, options: dict, told: str
) -> None:
    for word in words:
        (tmp_path / word).symlink_to(root / "stop")
    with pytest.raises(UserError, match=told) as error:
        build(KeywordData(root=str(tmp_path), cache=str(root.parent / "cache"), added_voices=4, **options))
    assert "\n" not in str(error.value)


def test_a_filler_that_sounds_like_a_keyword_is_left_out(root: Path, tmp_path: Path) -> None:
    for word in ("Cat", "Dog", "treee"):
        (tmp_path / word).symlink_to(root / "stop")
    splits = build(
        KeywordData(root=str(tmp_path), cache=str(root.parent / "cache"), unknown=True, unknown_share=1.0, **VOICES)
    )
    said = {id.split("/")[0].removeprefix("synthetic: ") for id in splits.train.ids if id.startswith("synthetic: ")}
    assert {"Cat", "Dog", "bed"} < said and not {"cat", "dog"} & said


def test_a_damaged_cache_is_told(root: Path, tmp_path: Path) -> None:
    wanted = KeywordData(
        root=str(root), cache=str(tmp_path / "cache"), words=("lights_on", "stop"), unknown=True, added_talk=3
    )
    build(wanted)
    for path in (tmp_path / "cache").glob("talk-*/_unknown_/*.wav"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="damaged; remove this folder"):
        build(wanted)


def test_talk_needs_its_class() -> None:
    with pytest.raises(UserError, match="_unknown_"):
        KeywordData(root="mine", added_talk=4)


def test_a_synthetic_folder_has_no_added_voices() -> None:
    with pytest.raises(UserError, match="synthetic_voices"):
        KeywordData(added_voices=4)


def test_near_misses_are_unknown_in_training_only(root: Path) -> None:
    splits = build(config(root, unknown=True, added_near_misses=3))
    near = [i for i, id in enumerate(splits.train.ids) if id.startswith("synthetic: ")]
    assert len(near) == 3 * EACH and {splits.labels[splits.train.targets[i]] for i in near} == {"_unknown_"}
    assert not any(id.startswith("synthetic: ") for split in (splits.validation, splits.test) for id in split.ids)
    with pytest.raises(UserError, match="data.added_near_misses"):
        config(root, added_near_misses=3)


def test_people_who_talk_are_the_background_of_streams_where_nobody_has_hours_of_talk(root: Path) -> None:
    splits = build(config(root, unknown=True, added_talk=3, background="synthetic"))
    assert len(splits.segments.talk) == 3 * SENTENCES and not splits.noises
    said = {splits.labels[word.target] for word in splits.segments.words}
    assert {"lights_on", "stop"} <= said
    with pytest.raises(UserError, match="data.background"):
        config(root, background="synthetic")
