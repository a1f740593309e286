"""The page in a real browser: Debian's chromium, headless, with a microphone that plays a file."""

import re
import shutil

import numpy as np
import pytest
import soundfile

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright (extra dev)")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="the browser tests need chromium (apt-get install chromium)"),
]
WORDS = [("low", 0.6), ("high", 1.6)]
PATIENCE = 60_000  # ms
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory, make_tone_stream):
    """Its microphone says low, high, low, high, ..."""
    file = tmp_path_factory.mktemp("microphone") / "words.wav"
    soundfile.write(file, make_tone_stream(WORDS, seconds=2.4, rate=48000), 48000, "PCM_16")
    with playwright.sync_playwright() as p:
        flags = [*FLAGS, f"--use-file-for-fake-audio-capture={file}"]
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, demo):
    """(options of the context) -> page; afterwards: nothing was fetched from elsewhere, and no script failed."""
    contexts, addresses, errors = [], [], []

    def open_one(**options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: addresses.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(demo.url)
        page.get_by_role("tab", name="Recording").wait_for()
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not [url for url in addresses if not url.startswith((demo.url, "data:", "blob:"))]
    assert not errors


def give(page, path):
    page.get_by_role("tab", name="Recording").click()
    page.locator("#clip input[type=file]").set_input_files(path)


def test_words_from_the_microphone_appear_in_the_page(open_page):
    page = open_page()
    # gradio fetches its recorder when the page has come up; a click before that fails
    page.wait_for_function("performance.getEntriesByType('resource').some(e => /\\/module-/.test(e.name))")
    page.wait_for_timeout(500)
    page.get_by_role("button", name="Record").first.click()
    page.locator("#log tbody tr").nth(2).wait_for()
    words = page.locator("#log tbody th").all_inner_texts()
    assert set(words) == {"low", "high"}
    assert re.search(r"\d{4,6} Hz", page.locator("#live .facts").inner_text())
    assert "dB" in page.locator("#live .meter").inner_text()
    page.get_by_role("button", name="Stop").first.click()
    page.get_by_text("stopped").wait_for()


def test_uploads_of_every_kind_are_studied(open_page, tone_stream, tmp_path):
    page = open_page()
    for rate, subtype, channels in ((44100, "PCM_16", 2), (48000, "PCM_32", 1), (22050, "FLOAT", 2)):
        sound = tone_stream(WORDS, seconds=2.4, rate=rate)
        soundfile.write(tmp_path / f"{rate}.wav", np.stack([sound] * channels, 1), rate, subtype)
        give(page, tmp_path / f"{rate}.wav")
        page.locator("#study .facts-line").filter(has_text=f"{rate} Hz").wait_for()
        assert page.locator("#study .chip b").all_inner_texts() == ["low", "high"]
        assert page.locator("#study .heat").count() == 2
        page.get_by_role("button", name="Clear").first.click()
        page.locator("#study .hint").wait_for()


def test_silence_and_mistakes_are_a_line_in_the_page(open_page, demo, tmp_path):
    soundfile.write(tmp_path / "silent.wav", np.zeros((48000, 2), np.int16), 48000)
    soundfile.write(tmp_path / "long.wav", np.zeros(int(8000 * demo.seconds) + 1), 8000)
    (tmp_path / "text.wav").write_text("no sound")
    page = open_page()
    give(page, tmp_path / "silent.wav")
    page.locator("#study .said.none").wait_for()
    for name, line in (("long", "longer than 10 s"), ("text", "cannot be read")):
        page.get_by_role("button", name="Clear").first.click()
        give(page, tmp_path / f"{name}.wav")
        page.get_by_role("alert").filter(has_text=line).wait_for()


def test_rescaling_is_compared_side_by_side_by_keyboard_alone(open_page):
    page = open_page(color_scheme="dark", viewport={"width": 400, "height": 800})
    page.get_by_role("tab", name="Recording").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="yes, no").focus()
    page.keyboard.press("Enter")
    page.locator("#study .drawing").first.wait_for()
    page.get_by_label("As recorded").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.locator("#comparison .card").nth(2).wait_for()
    assert "Δ × 2" in page.locator("#comparison .ours").inner_text()
    page.locator("#heard audio, #heard #waveform").first.wait_for(state="attached")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 400, "nothing sticks out on a phone"
    assert "dark" in page.evaluate("document.body.className")
