"""Splits: the published sha1 rule, official lists, and folders too small for either."""

import hashlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.data.keywords.split_rule import assign, recording, sha1_percent, speaker_of


def published_split(name: str, validation: float, testing: float) -> str:
    """The rule as its paper states it, written down independently."""
    speaker = re.sub(r"_nohash_.*$", "", name)
    number = int(hashlib.sha1(speaker.encode()).hexdigest(), 16)
    percent = (number % (2**27)) * (100.0 / (2**27 - 1))
    return "validation" if percent < validation else "test" if percent < testing + validation else "train"


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(10.0, 10.0), (5.0, 20.0)]))
def test_speakers_fall_where_the_published_rule_puts_them(seed: int, percent: tuple[float, float]) -> None:
    names = [f"{(seed * 7919 + i * 104729) % 2**32:08x}_nohash_{i % 3}.wav" for i in range(300)]
    found = assign([f"yes/{name}" for name in names], {}, validation_percent=percent[0], test_percent=percent[1])
    assert found.rule == "sha1 rule by speaker" and found.by_speaker
    assert found.splits == [published_split(name, *percent) for name in names]


def test_hash_is_a_share_of_a_hundred() -> None:
    values = [sha1_percent(str(i)) for i in range(2000)]
    assert 0 <= min(values) < 1 and 99 < max(values) <= 100 and 48 < sum(values) / 2000 < 52


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("yes/a.wav", "yes\\a.wav"),
        ("yes/a.wav", "./yes/a.flac"),
        ("yes/a.wav", " yes/a.WAV\r"),
        ("yes/a.wav", "yes//a"),
        ("caf\u00e9/a.wav", "cafe\u0301/a.wav"),
    ],
)
def test_list_entries_match_whatever_system_wrote_them(a: str, b: str) -> None:
    assert recording(a) == recording(b)
    assert recording("yes/a.b.wav") == "yes/a.b" != recording("yes/a.wav")


def test_lists_decide_and_tell_what_has_no_file() -> None:
    ids = ["yes/a_nohash_0.flac", "yes/b_nohash_0.flac", "no/c_nohash_0.flac"]
    lists = {"yes/a_nohash_0": "validation", "no/c_nohash_0": "test", "no/gone": "test"}
    found = assign(ids, lists)
    assert found.splits == ["validation", "train", "test"] and found.rule == "official lists"
    assert found.notes == ["1 of 3 entries of the split lists have no file"]


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 40), st.integers(1, 5), st.integers(0, 10**6))
def test_no_speaker_is_on_two_sides_and_no_split_is_empty(n_speakers: int, takes: int, seed: int) -> None:
    names = [f"{seed}-{s}_nohash_{k}.wav" for s in range(n_speakers) for k in range(takes)]
    ids = [f"{word}/{name}" for word in ("yes", "no") for name in names]
    found = assign(ids, {})
    sides = {}
    for id, split in zip(ids, found.splits, strict=True):
        assert sides.setdefault(speaker_of(recording(id).split("/")[1]), split) == split
    assert set(found.splits) == {"train", "validation", "test"}


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 60), st.integers(0, 10**6))
def test_without_speakers_every_word_is_in_every_split(n: int, seed: int) -> None:
    ids = [f"{word}/{seed + i}.wav" for word in ("yes", "no", "maybe") for i in range(n)]
    splits = assign(ids, {}).splits
    for k in range(3):
        assert set(splits[k * n : (k + 1) * n]) == {"train", "validation", "test"}
        assert splits[k * n : (k + 1) * n].count("train") >= n // 3


def test_one_speaker_is_split_by_file_with_a_warning() -> None:
    found = assign([f"{word}/me_nohash_{i}.wav" for word in ("yes", "no") for i in range(20)], {})
    assert not found.by_speaker and "new speakers" in found.notes[0]
    assert set(found.splits) == {"train", "validation", "test"}


def test_few_speakers_are_told_who_does_what() -> None:
    found = assign([f"yes/{name}_nohash_{k}.wav" for name in "ab2" for k in range(9)], {})
    assert found.by_speaker and "1 for train, 1 for validation, 1 for test" in found.notes[0]


def test_a_share_of_zero_leaves_its_split_empty() -> None:
    ids = [f"yes/{i:08x}_nohash_0.wav" for i in range(200)]
    assert set(assign(ids, {}, test_percent=0).splits) == {"train", "validation"}


def test_adding_clips_moves_no_other_clip() -> None:
    ids = [f"yes/{i:05x}_nohash_0.wav" for i in range(400)]
    assert assign(ids[:200], {}).splits == assign(ids, {}).splits[:200]


def test_copies_in_another_format_stay_together() -> None:
    ids = [f"yes/{i}.{suffix}" for i in range(30) for suffix in ("wav", "flac")]
    splits = assign(ids, {}).splits
    assert splits[::2] == splits[1::2]
