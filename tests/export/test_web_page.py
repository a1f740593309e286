"""The exported page in a real browser: torch's logits, Python's events, the words that kws-scan finds."""

import base64
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from kws_s5.audio.files import load_audio, save_wav
from kws_s5.audio.resample import resample
from kws_s5.config.spotter import SpotterConfig
from kws_s5.errors import UserError
from kws_s5.export.cli import main
from kws_s5.export.web_page import write_page
from kws_s5.listening.events import EventFinder
from kws_s5.listening.spotter import KeywordSpotter

EXAMPLE = Path(__file__).parents[2] / "demo" / "examples" / "six_commands.flac"
CHROMIUM = shutil.which("chromium")
EVENTS = {"threshold": 0.5, "smoothing": 0.05, "settle": 0.03, "release": 0.6, "refractory": 0.5, "warmup": 0.2}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--disable-background-networking",
    "--no-first-run",
    "--autoplay-policy=no-user-gesture-required",
]
in_browser = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)"),
]


def browser_tests(function):
    for mark in in_browser:
        function = mark(function)
    return function


@pytest.fixture(scope="module")
def chromium():
    """(flags) -> a browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra dev)")
    opened = []
    with playwright.sync_playwright() as p:

        def launch(*flags: str):
            opened.append(p.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags]))
            return opened[-1]

        yield launch
        for browser in opened:
            browser.close()


@pytest.fixture(scope="module")
def engine(chromium):
    """(folder) -> a page that has the model's scripts, opened as a file: nothing is served."""
    browser = chromium()

    def load(folder: Path):
        page = browser.new_page()
        page.goto(f"file://{folder}/index.html")
        page.evaluate("""() => { window.run = (text, rate) => {
            const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), x = new Float32Array(bytes.buffer);
            const step = new KwsStep(KWS_MODEL, rate), out = [], from = performance.now();
            for (let i = 0; i < x.length; i += 777) for (const u of x.subarray(i, i + 777))
                if (step.hear(u + 1e-12)) out.push(Array.from(step.decide()));
            return {logits: out, milliseconds: performance.now() - from}; } }""")
        return page

    return load


def run(page, sound: np.ndarray, rate: int) -> np.ndarray:
    text = base64.b64encode(np.float32(sound).tobytes()).decode()
    return np.array(page.evaluate("([text, rate]) => run(text, rate)", [text, rate])["logits"])


def of_torch(bundle, sound: np.ndarray, rate: float) -> np.ndarray:
    with torch.no_grad():
        x = torch.from_numpy(np.float32(sound))[None, :, None]
        return bundle.model.frame_logits(x, step_rescale=bundle.rate / rate)[0].numpy()


@browser_tests
def test_the_shipped_model_in_the_browser_gives_the_logits_of_torch(shipped, speech, engine, tmp_path) -> None:
    write_page(shipped, tmp_path, events=EVENTS)
    page = engine(tmp_path)
    for rate in (8000, 11025, 16000, 48000):
        sound = resample(speech(16000.0, seconds=2.0)[0], 16000.0, float(rate))
        got, want = run(page, sound, rate), of_torch(shipped, sound, rate)
        assert got.shape == want.shape
        assert np.abs(got - want).max() / np.abs(want).max() < 1e-4


@browser_tests
@pytest.mark.parametrize(
    "options",
    [
        {"activation": "full_glu"},
        {"activation": "half_glu2", "norm": "layer"},
        {"activation": "gelu", "prenorm": False},
        {"ssm_norm": True, "norm": "layer"},
        {"n_layers": 0},
        {"head": {"pooling": "last"}},
        {"front": {"absent": "mean", "n_poles": 3}},
        {"ssm": {"conj_sym": False, "discretization": "bilinear"}},
    ],
    ids=str,
)
def test_every_kind_of_layer_is_translated(make_bundle, engine, tmp_path, options) -> None:
    bundle = make_bundle(**options)
    write_page(bundle, tmp_path, events=EVENTS)
    sound = 0.3 * np.random.default_rng(0).standard_normal(4000).astype(np.float32)
    got, want = run(engine(tmp_path), sound, 8000), of_torch(bundle, sound, 8000.0)
    np.testing.assert_allclose(got, want, atol=2e-4 * max(1.0, np.abs(want).max()))


@browser_tests
def test_bytes_for_weights_are_a_third_of_the_size_and_keep_the_decisions(shipped, speech, engine, tmp_path) -> None:
    write_page(shipped, tmp_path / "a", events=EVENTS)
    write_page(shipped, tmp_path / "b", events=EVENTS, weights="int8")
    sizes = [(tmp_path / name / "kws_model.js").stat().st_size for name in "ab"]
    assert sizes[1] < 0.4 * sizes[0] < 1e6
    sound = speech(16000.0, seconds=2.0)[0]
    got, want = run(engine(tmp_path / "b"), sound, 16000), of_torch(shipped, sound, 16000.0)
    assert (got.argmax(1) == want.argmax(1)).mean() > 0.97


@browser_tests
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"threshold": 0.8, "smoothing": 0.2, "refractory": 1.5},
        {"settle": 0.0, "smoothing": 0.0, "release": 1.0, "refractory": 0.0, "warmup": 0.0},
    ],
    ids=str,
)
def test_the_rules_of_events_are_those_of_python(make_bundle, engine, tmp_path, config) -> None:
    bundle = make_bundle()  # yes (its own threshold: 0.4), no, _unknown_
    write_page(bundle, tmp_path, events=EVENTS | config)
    random = np.random.default_rng(3)
    rough = random.dirichlet(np.ones(3) * 0.3, 600).repeat(random.integers(1, 9, 600), 0)  # some still, some jumping
    times = (np.arange(len(rough)) + 1) / 100
    settings = SpotterConfig(**config)
    finder = EventFinder(("yes", "no"), [0.4, settings.threshold], 100.0, settings)
    want = [*finder.push(rough[:, :2], times), *finder.finish()]
    got = engine(tmp_path).evaluate(
        """([scores, times]) => { const finder = new KwsEvents(KWS_MODEL), out = [];
        scores.forEach((row, i) => { const e = finder.push(row, times[i]); if (e) out.push(e); });
        const last = finder.finish(); if (last) out.push(last); return out; }""",
        [rough.tolist(), times.tolist()],
    )
    assert [e["word"] for e in got] == [e.label for e in want] and len(want) > 10
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose([mine[name] for name in ("start", "end", "score", "time")], theirs[1:5], atol=1e-9)


@browser_tests
def test_pieces_of_a_recording_become_the_words_that_kws_scan_finds(shipped, engine, tmp_path) -> None:
    sound = load_audio(EXAMPLE)
    waveform = resample(sound.waveform, sound.rate, 48000.0)
    want = [event.label for event in KeywordSpotter(shipped).find(waveform, 48000)]
    write_page(shipped, tmp_path, events=EVENTS)
    page = engine(tmp_path)
    text = base64.b64encode(np.float32(waveform).tobytes()).decode()
    got = page.evaluate(
        """(text) => {
        const x = new Float32Array(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
        ui.step = new KwsStep(KWS_MODEL, 48000);
        ui.finder = new KwsEvents(KWS_MODEL);
        for (let i = 0, number = 0; i < x.length; i += 1920, number++) {
            if (number !== 3) hear({number, parts: [x.slice(i, i + 960), x.slice(i + 960, i + 1920)]});
        }
        return kws.events.map(event => event.word); }""",
        text,
    )
    assert got == want and len(want) >= 5
    assert page.evaluate("kws.state.lost") == 1, "a piece that never came is counted"
    assert page.locator("#log li").count() == len(want)
    assert "1 pieces lost" in page.locator("#time").inner_text()


@browser_tests
def test_a_page_opened_as_a_file_hears_the_microphone_and_asks_nobody(shipped, chromium, tmp_path) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(96000) / 48000).astype(np.float32) * 0.1
    save_wav(tmp_path / "microphone.wav", tone, 48000)
    write_page(shipped, tmp_path / "page", events=EVENTS)
    browser = chromium(f"--use-file-for-fake-audio-capture={tmp_path / 'microphone.wav'}")
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"file://{tmp_path}/page/index.html")
    page.get_by_role("button", name="Listen").click()
    page.wait_for_function("kws.state.heard > 2 * kws.state.step?.rate", timeout=120_000, polling=200)
    assert re.search(r"peak -2[01] dB", page.locator("#time").inner_text())  # 0.1 of full scale
    assert re.search(r"\d{5} Hz", page.locator("#facts").inner_text())
    page.get_by_role("button", name="Stop").click()
    assert not errors
    assert all(url.startswith(("file:", "blob:", "data:")) for url in asked), "nothing comes from elsewhere"


def test_labels_of_strangers_cannot_end_the_script(make_bundle, tmp_path) -> None:
    bundle = make_bundle()
    bundle.labels = ("</script><script>alert(1)</script>", "\u2028 no", "_unknown_")
    write_page(bundle, tmp_path, events=EVENTS)
    text = (tmp_path / "kws_model.js").read_text(encoding="ascii")
    assert "</script" not in text
    assert tuple(json.loads(text.split("= ", 1)[1].rstrip(";\n"))["labels"]) == bundle.labels


def test_the_command_writes_five_small_files_and_refuses_what_it_cannot_write(tmp_path, capsys) -> None:
    assert main(["commands12", "--to", "web", "--out", str(tmp_path), "--weights", "int8"]) == 0
    assert len(list(tmp_path.iterdir())) == 5 and sum(p.stat().st_size for p in tmp_path.iterdir()) < 1e6
    assert main(["commands12", "--to", "web", "--out", str(tmp_path), "--weights", "int6"]) == 2
    assert main(["commands12", "--to", "web", "--out", str(tmp_path), "--rate", "8000"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_model_with_nan_is_refused(make_bundle, tmp_path) -> None:
    bundle = make_bundle()
    with torch.no_grad():
        next(bundle.model.layers.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match="NaN"):
        write_page(bundle, tmp_path, events=EVENTS)
    assert not list(tmp_path.iterdir())
