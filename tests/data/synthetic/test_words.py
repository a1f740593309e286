"""Synthetic words: audible, different, repeatable to the bit, with speakers that never cross a split."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile

from kws_s5.data.keywords.manifest import scan
from kws_s5.data.synthetic import voices as synthetic_voices
from kws_s5.data.synthetic.espeak import ACCENTS, VARIANTS, Utterance, Voice, speak, speak_all
from kws_s5.data.synthetic.sound import babble, chirps, coloured_noise, hum, in_room, rms, room, trim
from kws_s5.data.synthetic.stream import synthesise_stream
from kws_s5.data.synthetic.words import synthesise, synthesise_in_cache
from kws_s5.errors import UserError

pytest.importorskip("espeakng_loader")
SMALL = {"words": ("yes", "no", "hey computer"), "n_voices": 5, "n_takes": 2, "progress": False}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return synthesise(tmp_path_factory.mktemp("synthetic") / "set", **SMALL)


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_layout_is_that_of_speech_commands(small):
    manifest = scan(small)
    assert manifest.words == tuple(sorted(SMALL["words"]))
    assert len(manifest.clips) == 3 * 5 * 2 and len(manifest.noises) == 5
    speakers = {
        split: {c.speaker for c in manifest.clips if c.split == split} for split in ("train", "validation", "test")
    }
    assert [len(s) for s in speakers.values()] == [3, 1, 1]
    assert len(set().union(*speakers.values())) == 5 and "" not in set().union(*speakers.values())


def test_clips_are_one_second_audible_unclipped_and_different(small):
    clips = [soundfile.read(small / clip.id) for clip in scan(small).clips]
    assert all(rate == 16000 and 16000 <= len(x) <= 32000 for x, rate in clips)
    assert all(0.005 < x.std() < 0.2 and np.abs(x).max() < 0.99 for x, _ in clips)
    assert len({x.tobytes() for x, _ in clips}) == len(clips)
    assert {soundfile.info(p).subtype for p in small.rglob("*.wav")} == {"PCM_16"}


def test_same_seed_same_bytes_whatever_the_number_of_jobs(small, tmp_path):
    again = synthesise(tmp_path / "again", **SMALL, jobs=1)
    assert contents(again) == contents(small)
    other = synthesise(tmp_path / "other", **SMALL | {"words": ("yes",)}, seed=1)
    assert not set(contents(other).values()) & {v for k, v in contents(small).items() if k.endswith(".wav")}


def test_what_is_there_is_kept_and_what_is_foreign_left_alone(small, tmp_path):
    before = os.stat(small).st_mtime_ns
    assert synthesise(small, **SMALL) == small and os.stat(small).st_mtime_ns == before
    with pytest.raises(UserError, match="other n_takes"):
        synthesise(small, **SMALL | {"n_takes": 1})
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UserError, match="something else"):
        synthesise(tmp_path, **SMALL)
    assert os.listdir(tmp_path) == ["mine"]


def test_the_cache_holds_one_folder_for_each_set_of_parameters(tmp_path):
    tiny = {"words": ("yes",), "n_voices": 3, "n_takes": 1, "noise": False, "progress": False}
    first = synthesise_in_cache(str(tmp_path), **tiny)
    assert synthesise_in_cache(str(tmp_path), **tiny) == first
    with ThreadPoolExecutor(3) as pool:
        others = set(pool.map(lambda _: synthesise_in_cache(str(tmp_path), **tiny, seed=3), range(3)))
    assert len(others) == 1 and first not in others
    assert len([p for p in tmp_path.iterdir() if p.is_dir()]) == 2
    assert json.loads((first / "synthetic.json").read_text())["words"] == ["yes"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"words": ()},
        {"words": ("a/b",)},
        {"words": ("..",)},
        {"words": ("yes", "yes")},
        {"words": ("_background_noise_",)},
        {"n_voices": 2},
        {"n_voices": 10**6},
        {"n_takes": 0},
        {"rate": 10},
        {"accents": ("no-such-accent",)},
        {"seconds": 0.0},
        {"words": ("...",)},
    ],
)
def test_senseless_parameters_are_one_line_and_leave_nothing(tmp_path, wrong):
    with pytest.raises(UserError) as error:
        synthesise(tmp_path / "new", **SMALL | wrong)
    assert "\n" not in str(error.value) and os.listdir(tmp_path) == []


def test_other_rates_and_languages(tmp_path):
    german = {"words": ("links",), "accents": ("de",), "n_voices": 3, "n_takes": 1, "rate": 8000, "noise": False}
    folder = synthesise(tmp_path / "de", **SMALL | german)
    clips = [soundfile.read(p) for p in sorted((folder / "links").iterdir())]
    assert [rate for _, rate in clips] == [8000] * 3 and all(x.std() > 0.005 for x, _ in clips)


@pytest.mark.parametrize("n_voices", [3, 4, 11, 40, 70, 150])
def test_held_out_speakers_have_timbres_of_their_own(n_voices):
    voices = synthetic_voices.draw_voices(n_voices, ACCENTS, 0)
    assert len({v.speaker for v in voices}) == n_voices
    validation, testing = synthetic_voices.held_out(voices, 10, 20)
    training = {v.speaker for v in voices} - validation - testing
    groups = [{v.variant for v in voices if v.speaker in split} for split in (training, validation, testing)]
    assert all(groups) and sum(map(len, groups)) == min(n_voices, len(VARIANTS)) == len(set().union(*groups))


def test_speech_repeats_exactly_and_depends_on_what_is_said_and_how():
    x, rate = speak("yes", Voice("en-us", "f3"))
    assert rate == 22050 and x.dtype == np.float32 and np.array_equal(x, speak("yes", Voice("en-us", "f3"))[0])
    voices = [Voice(), Voice("en"), Voice(variant="m2"), Voice(pitch=80), Voice(speed=100), Voice(intonation=99)]
    said = speak_all([Utterance(text, voice) for voice in voices for text in ("yes", "stop")])[0]
    assert len({w.tobytes() for w in said}) == 12
    assert len(speak("yes", Voice(speed=100))[0]) > 1.3 * len(speak("yes", Voice(speed=200))[0])


def test_every_voice_speaks_without_clipping():
    said, _ = speak_all([Utterance("stop", Voice(accent, variant)) for variant in VARIANTS for accent in ACCENTS])
    assert all(rms(x) > 0.008 and np.abs(x).max() < 0.999 and len(trim(x)) > 0.15 * 22050 for x in said)
    names = os.listdir(os.path.join(__import__("espeakng_loader").get_data_path(), "voices", "!v"))
    assert set(VARIANTS) <= set(names)  # an unknown variant would be ignored without a word


@pytest.mark.parametrize("text", ["x" * 3000, "\0"])
def test_texts_that_cannot_be_spoken_are_one_line(text):
    with pytest.raises(UserError, match="cannot speak"):
        speak(text)


def test_hostile_texts_are_only_read_aloud():
    for text in ("", "<speak><audio src='/etc/passwd'/></speak>", "[[_^_]]", "日本語 ü \ud83d\ude00", "-w /tmp/x"):
        assert speak(text)[0].ndim == 1


def test_a_missing_package_names_the_extra(tmp_path):
    script = (
        "import sys; sys.modules['espeakng_loader'] = None\n"
        "from kws_s5.data.synthetic.words import synthesise\n"
        "from kws_s5.errors import UserError\n"
        "try: synthesise(sys.argv[1])\n"
        "except UserError as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pip install kws-s5[synth]" in done.stdout and done.stdout.count("\n") == 1


def test_a_script_without_main_guard_can_synthesise(tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys\nfrom kws_s5.data.synthetic.words import synthesise\n"
        "synthesise(sys.argv[1], words=['yes'], n_voices=3, n_takes=1, noise=False)\n"
    )
    subprocess.run([sys.executable, str(tmp_path / "script.py"), str(tmp_path / "set")], check=True, timeout=120)
    assert len(list((tmp_path / "set/yes").iterdir())) == 3


def test_stream_words_are_where_they_are_said_to_be():
    stream = synthesise_stream([("yes", 1.0), ("no", 3.2), ("yes", 2.0)], seconds=5.0, snr=40.0, reverb=False)
    assert [w.word for w in stream.words] == ["yes", "yes", "no"] and len(stream.waveform) == 80000
    inside = np.zeros(80000, bool)
    for w, start in zip(stream.words, (1.0, 2.0, 3.2), strict=True):
        assert w.start == start and 0.15 < w.end - w.start < 0.9
        inside[round(w.start * 16000) : round(w.end * 16000)] = True
    assert rms(stream.waveform[inside]) > 50 * rms(stream.waveform[~inside])
    again = synthesise_stream([("yes", 1.0), ("no", 3.2), ("yes", 2.0)], seconds=5.0, snr=40.0, reverb=False)
    assert np.array_equal(stream.waveform, again.waveform)
    with pytest.raises(UserError, match="does not fit"):
        synthesise_stream([("yes", 1.0), ("no", 1.1)], seconds=5.0)


def test_noises_have_the_spectra_of_their_names():
    rng = np.random.default_rng(0)
    for exponent in (0.0, 1.0, 2.0):
        power = np.abs(np.fft.rfft(coloured_noise(160000, 16000, exponent, rng))) ** 2
        low, high = power[2000:4000].mean(), power[16000:32000].mean()  # three octaves apart
        assert np.log2(low / high) == pytest.approx(3 * exponent, abs=0.3)
    power = np.abs(np.fft.rfft(hum(160000, 16000, rng))) ** 2
    assert power[:10000].sum() > 0.99 * power.sum()  # below 1 kHz
    speech = [speak("good morning")[0], speak("how are you")[0]]
    for noise in (chirps(40000, 16000, rng), babble(speech, 40000, rng)):
        assert noise.shape == (40000,) and rms(noise) == pytest.approx(1, abs=1e-3) and np.isfinite(noise).all()


def test_a_room_keeps_level_and_length_and_adds_a_tail():
    rng = np.random.default_rng(0)
    click = np.zeros(8000, np.float32)
    click[1000] = 1.0
    wet = in_room(click, room(16000, rng))
    assert wet.shape == click.shape and rms(wet) == pytest.approx(rms(click), rel=1e-4)
    assert np.abs(wet[:999]).max() < 1e-5 and np.abs(wet[1050:1500]).max() > 1e-3
