"""The page: widgets, and which function runs when. What they show is made in view.py, live.py and recording.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import gradio as gr

from kws_s5.audio.files import Audio, save_wav
from kws_s5.bundle import Bundle
from kws_s5.demo import view
from kws_s5.demo.degrade import AS_RECORDED, DEGRADATIONS
from kws_s5.demo.live import Live
from kws_s5.demo.recording import examine, is_degraded, load_clip
from kws_s5.errors import UserError

TITLE = "kws_s5: keyword spotting at any sample rate"
HEAD = """<div class="kws head"><h1>kws_s5</h1>
<p>Keyword spotting on raw sound. The same weights listen at every sample rate: only their time step Δ follows it.</p>
</div>"""
MIC_HINT = "Press Record, allow the microphone, and say one of the words. The browser's own rate is used as it is."
CLIP_HINT = "Choose an example, or give a recording of your own."
FACTORS = (0.2, 1.2)  # of thresholds
STREAM_EVERY = 0.25  # seconds of sound in a chunk, at least
STATE_SECONDS = 3600  # a visitor's state is forgotten after so long without sound


@dataclass(frozen=True)
class Limits:
    """What one visitor, and all of them together, may ask for."""

    seconds: float = 60.0
    """Length of a recording."""
    megabytes: float = 20.0
    """Size of an upload."""
    queue: int = 100
    """Requests that wait; more are told that it is full."""
    studies: int = 2
    """Recordings looked at, at a time."""
    streams: int = 32
    """Microphones, at a time."""
    sessions: int = 200
    """Visitors whose state is kept."""
    disk_megabytes: float = 1000.0
    """Of the temporary folder: above, no uploads."""
    keep_seconds: float = 900.0
    """How long a file stays in the temporary folder."""


class Callbacks:
    """What the widgets call. Knows the models by the names that are offered, and one folder to write in."""

    def __init__(self, models: Mapping[str, Bundle], limits: Limits, folder: Path) -> None:
        self.models, self.limits, self.folder = dict(models), limits, folder

    def about(self, name: str) -> str:
        """The model in a line."""
        return f'<div class="kws">{view.model_line(name, self.models[name])}</div>'

    def listen(self, chunk: tuple[int, Any] | None, name: str, factor: float, live: Live | None) -> tuple:
        """A chunk of the microphone -> state, panel, log (left as it is while no word comes)."""
        if chunk is None:
            return live, gr.skip(), gr.skip()
        bundle = self.models[name]
        try:
            fresh = live is None or live.spotter.bundle is not bundle or live.factor != factor
            live = Live(bundle, factor) if fresh else live
            events = live.push(*chunk)
        except UserError as error:
            return live, _in_page(view.notice(str(error))), gr.skip()
        return live, view.live_panel(live, bundle.rate), view.live_log(live) if events or fresh else gr.skip()

    def stop(self, live: Live | None) -> tuple:
        """The microphone was switched off -> panel, log."""
        if live is None or not live.spotter.rate:
            return gr.skip(), gr.skip()
        live.finish()
        return view.live_panel(live, live.spotter.bundle.rate), view.live_log(live)

    def study(self, path: str | None, choice: str, name: str, factor: float = 1.0) -> tuple:
        """A recording -> its pictures, the comparison, and the sound as the model gets it."""
        if not path:
            return _in_page(view.hint(CLIP_HINT)), "", gr.update(value=None, visible=False)
        bundle, degradation = self.models[name], DEGRADATIONS[choice]
        try:
            made = examine(bundle, load_clip(path, max_seconds=self.limits.seconds), degradation, factor=factor)
        except UserError as error:
            return _in_page(view.notice(str(error))), "", gr.update(value=None, visible=False)
        sound = gr.update(value=None, visible=False)
        if is_degraded(degradation):
            sound = gr.update(value=self._file_of(made.audio), visible=True, label=f"What the model hears: {choice}")
        compared = view.comparison(made, degradation.explanation) if len(made.hearings) > 1 else ""
        return view.study(made, top=bundle.rate / 2), compared, sound

    def _file_of(self, audio: Audio) -> str:
        handle, path = mkstemp(".wav", "heard-", self.folder)
        with open(handle, "wb"):
            pass
        save_wav(path, audio.waveform, audio.rate)
        return path


def build(models: Mapping[str, Bundle], *, folder: Path, examples: Mapping[str, Path], limits: Limits) -> gr.Blocks:
    """The page.

    Args:
        models: by the names that visitors see; the first one is chosen.
        folder: where sounds made for the visitor are written.
        examples: name -> file, inside the folder.
    """
    calls, first = Callbacks(models, limits, folder), next(iter(models))
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=False) as page:
        gr.HTML(HEAD)
        with gr.Row():
            name = gr.Dropdown(list(models), value=first, label="Model", interactive=True)
            factor = gr.Slider(
                *FACTORS,
                value=1.0,
                step=0.05,
                label="Thresholds, times the model's own",
                info="Lower: more words are found, and more of them are false.",
            )
        about = gr.HTML(calls.about(first))
        name.change(calls.about, name, about, api_visibility="private", show_progress="hidden")
        with gr.Tabs():
            with gr.Tab("Microphone"):
                _microphone(calls, name, factor)
            with gr.Tab("Recording"):
                _recording(calls, name, factor, examples)
    return page


def _microphone(calls: Callbacks, name: gr.Dropdown, factor: gr.Slider) -> None:
    live = gr.State(None, time_to_live=STATE_SECONDS)
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            mic = gr.Audio(
                sources=["microphone"], type="numpy", streaming=True, label="Microphone", editable=False, buttons=[]
            )
            panel = gr.HTML(_in_page(view.hint(MIC_HINT)), elem_id="live")
        with gr.Column(scale=2, min_width=260):
            log = gr.HTML(_in_page(view.hint("Words will appear here.")), elem_id="log")
    _refuse_addresses(mic)
    mic.stream(
        calls.listen,
        [mic, name, factor, live],
        [live, panel, log],
        stream_every=STREAM_EVERY,
        show_progress="hidden",
        concurrency_limit=calls.limits.streams,
        api_visibility="private",
    )
    mic.stop_recording(calls.stop, live, [panel, log], show_progress="hidden", api_visibility="private")


def _recording(calls: Callbacks, name: gr.Dropdown, factor: gr.Slider, examples: Mapping[str, Path]) -> None:
    limits = calls.limits
    with gr.Row(elem_classes="examples"):
        buttons = {title: gr.Button(title, size="sm", variant="secondary") for title in examples}
    clip = gr.Audio(
        sources=["upload", "microphone"],
        type="filepath",
        editable=False,
        elem_id="clip",
        buttons=[],
        label=f"Recording: any rate, up to {limits.seconds:g} s and {limits.megabytes:g} MB",
    )
    _refuse_addresses(clip)
    rate = gr.Radio(list(DEGRADATIONS), value=AS_RECORDED, label="Sample rate that reaches the model", elem_id="rate")
    compared = gr.HTML("", elem_id="comparison", padding=False)
    heard = gr.Audio(interactive=False, visible=False, editable=False, elem_id="heard", buttons=["download"])
    result = gr.HTML(_in_page(view.hint(CLIP_HINT)), elem_id="study", padding=False)
    for title, button in buttons.items():
        button.click(
            lambda path=str(examples[title]): path, None, clip, api_visibility="private", show_progress="hidden"
        )
    inputs, outputs = [clip, rate, name, factor], [result, compared, heard]
    options = {"concurrency_limit": limits.studies, "concurrency_id": "study", "show_progress_on": [result]}
    clip.change(calls.study, inputs, outputs, api_name="examine", **options)
    gr.on(
        [rate.change, name.change, factor.change],
        calls.study,
        inputs,
        outputs,
        api_visibility="private",
        trigger_mode="always_last",
        **options,
    )


def _in_page(content: str) -> str:
    return f'<div class="kws">{content}</div>'


def _refuse_addresses(audio: gr.Audio) -> None:
    """A visitor may name uploads only: without this, gradio would fetch http addresses named in a request."""
    cached = audio.async_move_resource_to_block_cache

    async def local(path: str | Path | None) -> str | None:
        if path is not None and "://" in str(path):
            raise gr.Error("only uploaded recordings", print_exception=False)
        return await cached(path)

    audio.async_move_resource_to_block_cache = local
