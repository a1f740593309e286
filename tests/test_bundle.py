"""A model file carries all it needs, gives the same outputs after loading, and every damaged one is refused."""

import json
import pickle
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import kws_s5
from kws_s5.audio.files import load_audio
from kws_s5.bundle import Bundle, load
from kws_s5.bundle_file import FORMAT, KEY, _digest
from kws_s5.config import ClassHead, KeywordData, LinearFront, ModelConfig, RunConfig, S5Mixer
from kws_s5.data.batch import Example, collate
from kws_s5.errors import UserError
from kws_s5.model import build_model

LABELS = ("yes", "no", "höher")


def bundle_of(*, n_layers: int = 2, **data: object) -> Bundle:
    torch.manual_seed(0)
    model = ModelConfig(
        d_model=6,
        n_layers=n_layers,
        front=LinearFront(gain=2.4),
        head=ClassHead(),
        n_outputs=3,
        mixer=S5Mixer(ssm_size=8, blocks=2, bidirectional=True),
        rate=1000.0,
    )
    config = RunConfig("test", KeywordData(rate=1000.0, **{"seconds": 0.1, **data}), model)
    return Bundle(
        build_model(model).eval(),
        config,
        LABELS,
        thresholds={"yes": 0.7},
        note="made up, CC0",
        metrics={"validation": {"accuracy": 0.5}},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    bundle_of().save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    bundle_of().save(path)
    return path.read_bytes()


def batch(rates=(1000.0, 500.0)):
    torch.manual_seed(1)
    return collate([Example(torch.randn(40 + i, 1), torch.tensor(0), rate) for i, rate in enumerate(rates)])


def test_a_loaded_model_gives_the_same_outputs_and_knows_everything(path: Path) -> None:
    original, loaded = bundle_of(), kws_s5.load(path)
    torch.testing.assert_close(loaded.logits(batch()), original.logits(batch()), rtol=0, atol=0)
    assert loaded.config == original.config and loaded.labels == LABELS and loaded.rate == 1000.0
    assert (loaded.thresholds, loaded.note, loaded.metrics) == ({"yes": 0.7}, "made up, CC0", original.metrics)
    assert loaded.version == kws_s5.__version__ and not loaded.model.training


def test_a_run_folder_is_as_good_as_its_file(path: Path) -> None:
    torch.testing.assert_close(load(path.parent).logits(batch()), load(path).logits(batch()), rtol=0, atol=0)


def test_saving_twice_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    load(path).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_mixed_rates_equal_each_clip_alone() -> None:
    bundle = bundle_of()
    both = bundle.logits(batch())
    for i, rate in enumerate((1000.0, 500.0)):
        one = batch()
        alone = collate([Example(one.x[i, : one.lengths[i]], torch.tensor(0), rate)])
        torch.testing.assert_close(bundle.logits(alone)[0], both[i], rtol=1e-4, atol=1e-5)


def test_rescale_is_the_model_called_with_train_rate_over_rate() -> None:
    bundle, half = bundle_of(), batch((500.0, 500.0))
    direct = bundle.model(half.x, half.lengths, step_rescale=2.0)
    torch.testing.assert_close(bundle.logits(half), direct, rtol=1e-5, atol=1e-6)
    plain = bundle.model(half.x, half.lengths)
    torch.testing.assert_close(bundle.logits(half, rescale=False), plain, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(direct, plain, atol=1e-3)


def test_classify_gives_probabilities_for_numpy_and_torch_alike() -> None:
    bundle = bundle_of()
    x = np.random.default_rng(0).uniform(-1, 1, 90)
    found = bundle.classify(x, 1000)
    assert list(found) == list(LABELS) and sum(found.values()) == pytest.approx(1.0, abs=1e-6)
    assert found == pytest.approx(bundle.classify(torch.from_numpy(x), 1000.0))


@pytest.mark.parametrize("waveform", ["yes.wav", None, [[0.0, 1.0], [2.0]]])
def test_classify_tells_who_gives_a_file_how_to_read_it(waveform) -> None:
    with pytest.raises(UserError, match="load_audio"):
        bundle_of().classify(waveform, 1000)


def test_the_front_door_reads_sound_files_too() -> None:
    assert kws_s5.load_audio is load_audio and "load_audio" in dir(kws_s5)


def test_a_model_shows_itself_in_one_line() -> None:
    assert "\n" not in repr(bundle_of()) and all(label in repr(bundle_of()) for label in LABELS)


def test_classify_treats_length_as_training_did() -> None:
    x = torch.randn(60)
    padded = torch.cat([x, torch.zeros(40)])
    assert bundle_of().classify(x, 1000) == pytest.approx(bundle_of().classify(padded, 1000), abs=1e-6)
    own_length = bundle_of(pad=False)
    assert own_length.classify(x, 1000) != pytest.approx(own_length.classify(padded, 1000), abs=1e-4)
    longer = torch.cat([torch.ones(20), padded, torch.ones(20)])
    assert bundle_of().classify(longer, 1000) == pytest.approx(bundle_of().classify(padded, 1000), abs=1e-6)


@pytest.mark.parametrize(
    "waveform, rate, word",
    [
        (np.zeros((2, 10)), 1000, "expected (L,)"),
        (np.zeros(0), 1000, "expected (L,)"),
        (np.zeros(10, dtype=np.int16), 1000, "load_audio"),
        (np.full(10, np.nan), 1000, "NaN"),
        (np.zeros(10), 0, "rate"),
        (np.zeros(10), float("nan"), "rate"),
    ],
)
def test_classify_refuses_what_is_not_a_waveform_with_its_rate(waveform, rate, word) -> None:
    with pytest.raises(UserError, match=word.replace("(", r"\(").replace(")", r"\)")):
        bundle_of().classify(waveform, rate)


def refused(path: Path, word: str) -> None:
    with pytest.raises(UserError) as caught:
        load(path)
    assert word in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_truncated_at_any_place_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for size in sorted({*range(0, 64), *range(64, len(whole), 61), len(whole) - 1}):
        path.write_bytes(whole[:size])
        refused(path, "")


def test_any_altered_byte_is_refused(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    random = np.random.default_rng(0)
    for place in random.choice(len(whole), 150, replace=False).tolist():
        altered = bytearray(whole)
        altered[place] ^= 1 << random.integers(8)
        path.write_bytes(altered)
        try:
            found = load(path)
        except UserError:
            continue
        # JSON padding and key spelling of the outer header may change without changing what it says
        torch.testing.assert_close(found.logits(batch()), bundle_of().logits(batch()), rtol=0, atol=0)
        assert found.labels == LABELS


def test_appended_bytes_are_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x" * 1000)
    refused(path, "damaged")


def test_a_pickle_in_disguise_is_refused_and_not_executed(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    disguised = tmp_path / "model.safetensors"
    for write in (lambda: disguised.write_bytes(pickle.dumps(Trap())), lambda: torch.save(Trap(), disguised)):
        write()
        refused(disguised, "nothing was loaded")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "content, word",
    [
        (b"", "not a model file"),
        (b"RIFF", "not a model file"),
        (b"RIFF" * 100, "not a model file"),
        (struct.pack("<Q", 1 << 62), "truncated"),
        (struct.pack("<Q", 2) + b"{}", "no kws_s5 entry"),
        (struct.pack("<Q", 9 << 20) + b" " * (9 << 20), "header of"),
        (struct.pack("<Q", 5) + b"hello", "damaged"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    refused(tmp_path / "x.safetensors", word)


def rewritten(path: Path, change) -> Path:
    """A file with a valid checksum but changed contents: what a forger, or a bug, would make."""
    tensors = load_file(path)
    header = json.loads(path.read_bytes()[8 : 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]])
    description = json.loads(header["__metadata__"][KEY])
    change(tensors, description)
    description.pop("sha256")
    description["sha256"] = _digest(tensors, description)
    save_file(tensors, path, metadata={KEY: json.dumps(description)})
    return path


CHANGES = {
    "newer kws_s5": lambda t, d: d.update(format=FORMAT + 1),
    "unknown key": lambda t, d: d["config"].update(future=1),
    "must be one of": lambda t, d: d["config"]["model"].update(activation="eval"),
    "labels for": lambda t, d: d.update(labels=["a"]),
    "is missing": lambda t, d: t.pop("layers.0.out2.bias"),
    "is unknown": lambda t, d: t.update(extra=torch.zeros(1)),
    "has shape": lambda t, d: t.update({"head.decoder.bias": torch.zeros(4)}),
    "NaN or infinity": lambda t, d: t["layers.0.seq.D"].fill_(float("nan")),
    "negative variance": lambda t, d: t["layers.0.norm.var"][:1].fill_(-1.0),
    "head.window": lambda t, d: d["config"]["model"]["head"].update(window=1e8),
    "differ in size": lambda t, d: d["config"]["model"].update(d_model=10**9),
    "differ in size ": lambda t, d: d["config"]["model"].update(n_layers=10**6),
    " differ in size": lambda t, d: d["config"]["model"]["mixer"].update(ssm_size=1 << 20, blocks=1),
    "wrong type": lambda t, d: d.update(labels="abc"),
    "no format number": lambda t, d: d.update(format="1"),
}


@pytest.mark.parametrize("word", CHANGES)
def test_contents_that_do_not_belong_together_are_refused(path: Path, word: str) -> None:
    refused(rewritten(path, CHANGES[word]), word.strip())


def test_finite_weights_that_give_no_numbers_are_one_error(path: Path) -> None:
    found = load(rewritten(path, lambda t, d: t["head.decoder.weight"].fill_(3e38)))
    for ask in (lambda: found.logits(batch()), lambda: found.classify(np.ones(90), 1000)):
        with pytest.raises(UserError, match="NaN or infinity instead of scores"):
            ask()


def test_an_altered_label_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"yes", b"yet"))
    refused(path, "checksum")


def test_names_that_are_nowhere_get_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file, run folder or shipped model"):
        load("commands13")
    with pytest.raises(UserError, match="first epoch"):
        load(tmp_path)


def test_saving_never_leaves_half_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    broken = bundle_of()
    broken.metrics = {"accuracy": float("nan")}
    with pytest.raises(ValueError, match="JSON"):
        broken.save(path)
    assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1


def test_a_model_without_layers_saves_and_loads(tmp_path: Path) -> None:
    bundle = bundle_of(n_layers=0)
    bundle.save(tmp_path / "m.safetensors")
    torch.testing.assert_close(load(tmp_path / "m.safetensors").logits(batch()), bundle.logits(batch()))


def test_importing_the_package_stays_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys, kws_s5; heavy = {'torch', 'lightning', 'matplotlib', 'gradio', 'librosa', 'torchaudio'}; "
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert replace(bundle_of().config) == bundle_of().config


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_damage_is_always_refused_in_one_line(data: st.DataObject, whole: bytes) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        first = data.draw(st.integers(0, len(damaged) - 1))
        piece = data.draw(st.binary(max_size=16))
        kept = data.draw(st.sampled_from([0, len(piece)]))  # insert, or overwrite
        damaged[first : first + kept] = piece
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(damaged)
        if bytes(damaged) == whole:
            return
        with pytest.raises(UserError) as error:
            load(path)
        assert "\n" not in str(error.value)
