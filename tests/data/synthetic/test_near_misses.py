"""Near misses of a keyword share its sounds and never are the keyword; voices say them, not their names."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

pytest.importorskip("espeakng_loader", reason="needs the extra synth")

from kws_s5.data.synthetic.espeak import Utterance, Voice, phonemes_of, speak_all
from kws_s5.data.synthetic.near_misses import EACH, near_miss, near_misses_in_cache, split

ATHENA = ["a", "T", "'i:", "n", "@"]


def bare(phonemes: list[str]) -> str:
    return "".join(phonemes).replace("'", "").replace(",", "")


def test_a_keyword_is_never_its_own_near_miss_and_shares_sounds_with_every_one() -> None:
    rng = np.random.default_rng(0)
    drawn = [near_miss(ATHENA, rng) for _ in range(300)]
    assert all(bare(other) != bare(ATHENA) for other in drawn)
    assert all({bare([sound]) for sound in other} & {"a", "T", "i:", "n", "@"} for other in drawn)
    assert len({bare(other) for other in drawn}) > 100


def test_beginnings_ends_and_whole_lengths_come_up() -> None:
    rng = np.random.default_rng(1)
    drawn = {bare(near_miss(ATHENA, rng)) for _ in range(300)}
    assert {"aTi:", "Ti:n@", "n@"} <= drawn  # parts
    assert any(len(other) == len(bare(ATHENA)) for other in drawn)


def test_one_changed_sound_alone_is_not_taught() -> None:
    rng = np.random.default_rng(2)
    same_length = [other for other in (near_miss(ATHENA, rng) for _ in range(300)) if len(other) == len(ATHENA)]
    swapped = [sum(a != b for a, b in zip(other, ATHENA, strict=True)) for other in same_length]
    assert min(swapped) >= 1 and np.mean([n >= 2 for n in swapped]) > 0.9  # a syllable may keep its consonant or vowel


@pytest.mark.parametrize(
    ("phonemes", "syllables"),
    [
        (ATHENA, [["a"], ["T", "'i:"], ["n", "@"]]),
        (["s", "t", "'0", "p"], [["s", "t", "'0", "p"]]),
        (["a#", "m", "'i:", "l", "i@"], [["a#"], ["m", "'i:"], ["l", "i@"]]),
    ],
)
def test_syllables_begin_with_the_consonant_before_their_vowel(phonemes: list[str], syllables: list[list[str]]) -> None:
    assert split(phonemes) == syllables


def test_phonemes_are_the_synthesisers_own_names() -> None:
    assert phonemes_of(["athena", "hey athena"]) == [ATHENA, ["h", "'eI", *ATHENA]]


def test_phonemes_in_brackets_are_spoken_as_the_word_they_spell() -> None:
    voice = Voice()
    (word, spelled, read_out), _ = speak_all(
        [Utterance("athena", voice), Utterance("[[a|T|'i:|n|@]]", voice, True), Utterance("[[a|T|'i:|n|@]]", voice)]
    )
    assert abs(len(word) - len(spelled)) < 0.2 * len(word) < 0.2 * len(read_out)


def test_a_folder_of_near_misses_is_made_once_and_is_the_same_again(tmp_path: Path) -> None:
    a = near_misses_in_cache(["athena"], n_voices=3, cache=str(tmp_path / "a"), progress=False)
    b = near_misses_in_cache(["athena"], n_voices=3, cache=str(tmp_path / "b"), progress=False)
    files = sorted(path.relative_to(a) for path in a.rglob("*.wav"))
    assert len(files) == 3 * EACH
    for file in files:
        assert np.array_equal(soundfile.read(a / file)[0], soundfile.read(b / file)[0])
        assert np.abs(soundfile.read(a / file)[0]).max() > 0.01
