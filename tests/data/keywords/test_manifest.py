"""Reading a folder: what counts as a recording, what is told, what is refused."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.data.keywords.manifest import Clip, check_disjoint, scan, shared_speakers
from kws_s5.errors import UserError


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def speakers(word: str, n: int) -> list[str]:
    return [f"{word}/{i:04x}_nohash_{k}.wav" for i in range(n) for k in range(2)]


def test_words_speakers_and_noise_are_found(tmp_path: Path) -> None:
    fill(
        tmp_path,
        *speakers("yes", 30),
        *speakers("no", 30),
        "_background_noise_/tap.wav",
        "README.md",
        "yes/a.txt",
        "yes/.hidden.wav",
        ".git/x.wav",
        "yes/LOUD.WAV",
        "yes/b.m4a",
        "yes/sub/c.wav",
    )
    found = scan(tmp_path)
    assert found.words == ("no", "yes") and [clip.id for clip in found.noises] == ["_background_noise_/tap.wav"]
    assert Counter(clip.word for clip in found.clips) == {"no": 60, "yes": 61}
    assert {clip.speaker for clip in found.clips if "nohash" in clip.id} == {f"{i:04x}" for i in range(30)}
    assert any(".txt" in note and ".m4a" in note and "folders" in note for note in found.notes)


def test_every_recording_is_listed_once_in_a_stable_order(tmp_path: Path) -> None:
    fill(tmp_path, *speakers("yes", 40), *speakers("no", 40))
    first, again = scan(tmp_path), scan(str(tmp_path) + "/")
    assert first.clips == again.clips and len({clip.id for clip in first.clips}) == 160
    assert [clip.id for clip in first.clips] == sorted(clip.id for clip in first.clips)


def test_official_lists_are_read_with_another_suffix_and_line_ends(tmp_path: Path) -> None:
    fill(tmp_path, *[name.replace(".wav", ".flac") for name in speakers("yes", 3) + speakers("no", 3)])
    (tmp_path / "validation_list.txt").write_bytes(
        b"\xef\xbb\xbfyes/0000_nohash_0.wav\r\nno\\0000_nohash_0.wav\r\n\r\n"
    )
    (tmp_path / "testing_list.txt").write_text("./yes/0001_nohash_0.wav\n")
    found = scan(tmp_path)
    assert found.rule == "official lists"
    assert Counter(clip.split for clip in found.clips) == {"train": 9, "validation": 2, "test": 1}
    assert shared_speakers(found.clips) == ["0000", "0001"]  # told, because these lists do not hold speakers out


@pytest.mark.parametrize(
    ("validation", "testing", "told"),
    [
        (b"yes/0000_nohash_0.wav", b"yes/0000_nohash_0.flac", "both"),
        (b"maybe/x.wav", b"", "no entry"),
        (b"\xff\xfe\x00", b"", "UTF-8"),
    ],
)
def test_contradictory_lists_are_refused(tmp_path: Path, validation: bytes, testing: bytes, told: str) -> None:
    fill(tmp_path, *speakers("yes", 3))
    (tmp_path / "validation_list.txt").write_bytes(validation)
    (tmp_path / "testing_list.txt").write_bytes(testing)
    with pytest.raises(UserError, match=told):
        scan(tmp_path)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_lists_of_any_bytes_are_read_or_refused(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = fill(Path(folder), *speakers("yes", 4))
        (root / "testing_list.txt").write_bytes(content)
        try:
            assert len(scan(root).clips) == 8
        except UserError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "no recordings"),
        (("a.wav",), "no word folders"),
        (("train/yes/a.wav", "test/yes/b.wav"), "ready-made splits"),
        (("yes/a.txt",), "no recordings"),
        (("_background_noise_/a.wav",), "no recordings"),
    ],
)
def test_folders_without_words_say_what_to_do(tmp_path: Path, names: tuple[str, ...], told: str) -> None:
    with pytest.raises(UserError, match=told):
        scan(fill(tmp_path, *names))


def test_missing_folders_and_files_are_refused(tmp_path: Path) -> None:
    for root in (tmp_path / "gone", fill(tmp_path, "file.wav") / "file.wav"):
        with pytest.raises(UserError, match="no such folder"):
            scan(root)


def test_links_and_odd_names_are_listed_not_followed_in_circles(tmp_path: Path) -> None:
    fill(tmp_path, *speakers("yes", 4))
    (tmp_path / "yes" / "loop.wav").symlink_to(tmp_path / "yes" / "loop.wav")
    (tmp_path / "yes" / "circle").symlink_to(tmp_path)
    (tmp_path / "yes" / "folder.wav").mkdir()
    (tmp_path / "self").symlink_to(tmp_path)
    with open(os.fsencode(tmp_path) + b"/yes/\xff\n.wav", "wb"):
        pass
    found = scan(tmp_path)
    assert len(found.clips) == 8 + 3 and {clip.size for clip in found.clips if "loop" in clip.id} == {-1}
    os.mkdir(os.fsencode(tmp_path) + b"/\xfe")
    with pytest.raises(UserError, match="rename"):
        scan(tmp_path)


def test_the_proof_of_disjoint_splits_can_fail() -> None:
    a = Clip("yes/s_nohash_0.wav", "yes", "s", "train", 1, 1)
    b = Clip("no/s_nohash_1.wav", "no", "s", "test", 1, 1)
    check_disjoint((a, b), by_speaker=False)
    with pytest.raises(AssertionError):
        check_disjoint((a, b), by_speaker=True)
    with pytest.raises(AssertionError):
        check_disjoint((a, Clip("yes/s_nohash_0.flac", "yes", "s", "test", 1, 1)), by_speaker=False)
