"""Synthetic people who talk: repeatable, some seconds a sentence, without the keywords and what sounds like them."""

import numpy as np
import pytest
import soundfile

from kws_s5.data.keywords.manifest import scan
from kws_s5.data.synthetic.espeak import pronounce
from kws_s5.data.synthetic.sentences import vocabulary
from kws_s5.data.synthetic.talk import SENTENCES, sounding_like, talk_in_cache
from kws_s5.errors import UserError

pytest.importorskip("espeakng_loader")


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    return talk_in_cache(["stop", "no"], n_voices=3, cache=str(tmp_path_factory.mktemp("talk")), progress=False)


def test_every_voice_says_its_sentences(talk):
    clips = scan(talk).clips
    assert {clip.word for clip in clips} == {"_unknown_"} and len(clips) == 3 * SENTENCES
    assert len({clip.speaker for clip in clips}) == 3
    sounds = [soundfile.read(talk / clip.id) for clip in clips]
    assert all(rate == 16000 and 0.003 < x.std() < 0.2 and np.abs(x).max() < 1 for x, rate in sounds)
    assert 2.0 < np.median([len(x) / rate for x, rate in sounds]) < 8.0
    assert len({x.tobytes() for x, _ in sounds}) == len(sounds)


def test_made_once_and_the_same_again(talk, tmp_path):
    before = {p: p.stat().st_mtime_ns for p in talk.rglob("*.wav")}
    assert talk_in_cache(["no", "stop"], n_voices=3, cache=str(talk.parent), progress=False) == talk
    assert {p: p.stat().st_mtime_ns for p in talk.rglob("*.wav")} == before
    again = talk_in_cache(["stop", "no"], n_voices=3, cache=str(tmp_path), jobs=1, progress=False)
    one, two = ([path.read_bytes() for path in sorted(folder.rglob("*.wav"))] for folder in (talk, again))
    assert one == two
    assert talk_in_cache(["stop"], n_voices=3, cache=str(tmp_path), progress=False) != again


def test_words_that_sound_like_a_keyword_count_as_keywords():
    assert sounding_like(["no", "right"]) == {"no", "know", "right", "write"}
    assert sounding_like(["Turn_Left"]) == sounding_like(["turn-left"]) == {"turn left"}
    assert {"turn", "left"} <= set(vocabulary())


def test_pronunciation_has_no_stress_and_takes_several_clauses():
    no, know, record, two = pronounce(["no", "know", "banana", "one, two. three"])
    assert no == know and not set("',") & set(record) and len(two.split()) == 3
    assert pronounce(["no"], "de") != pronounce(["no"], "en-us") and pronounce([]) == []
    with pytest.raises(UserError, match="xx-zz"):
        pronounce(["no"], "xx-zz")


def test_too_many_voices_are_refused(tmp_path):
    with pytest.raises(UserError, match="at most"):
        talk_in_cache(["no"], n_voices=10**6, cache=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed(tmp_path):
    made = talk_in_cache(["no"], n_voices=3, cache=str(tmp_path), progress=False)
    left = tmp_path / f".{made.name}.abc"
    left.mkdir()
    assert talk_in_cache(["no"], n_voices=3, cache=str(tmp_path)) == made and not left.exists()
