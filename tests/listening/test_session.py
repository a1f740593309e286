"""A session gives the offline scores: any chunking, rate, type and layout, after a reset, through a saved state."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from kws_s5.bundle import Bundle
from kws_s5.config import BankFront, ClassHead, KeywordData, LinearFront, LogMelFront, ModelConfig, RunConfig, S5Mixer
from kws_s5.errors import UserError
from kws_s5.listening.session import StreamingSession
from kws_s5.model.sequence import build_model

RATE = 16000
SECONDS = 1.3


def make(front=BankFront(n_modes=6), head=ClassHead(frame_logits=True, window=0.3), **ssm) -> Bundle:  # noqa: B008
    torch.manual_seed(0)
    model = ModelConfig(
        d_model=6,
        n_layers=2,
        front=front,
        head=head,
        n_outputs=3,
        rate=RATE,
        mixer=S5Mixer(ssm_size=8, blocks=2, dt_min=0.01, dt_max=0.5, **ssm),
    )
    config = RunConfig(name="tiny", data=KeywordData(seconds=0.5, rate=RATE), model=model)
    return Bundle(build_model(model).eval(), config, labels=("yes", "no", "_unknown_"))


BUNDLE = make()


def sound(rate: float, n_streams: int = 1, seed: int = 0) -> np.ndarray:
    return (0.2 * np.random.default_rng(seed).standard_normal((n_streams, round(SECONDS * rate)))).astype(np.float32)


def offline(bundle: Bundle, x: np.ndarray, rate: float) -> np.ndarray:
    with torch.no_grad():
        return bundle.model.frame_logits(torch.from_numpy(x)[..., None], step_rescale=RATE / rate).numpy()


def pushed(session: StreamingSession, x: np.ndarray, cuts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and times of x (N, L) or (L,) cut at ``cuts`` along its last axis."""
    edges = [0, *sorted(cuts), x.shape[-1]]
    frames = [session.push(x[..., a:b]) for a, b in zip(edges, edges[1:], strict=False)] + [session.flush()]
    return np.concatenate([f.logits for f in frames], 1), np.concatenate([f.times for f in frames])


@settings(max_examples=30, deadline=None)
@given(
    rate=st.sampled_from([8000, 11025, 16000, 44100, 48000]),
    block=st.sampled_from([0.0, 0.05]),
    shares=st.lists(st.floats(0, 1), max_size=12),
    tiny=st.integers(0, 40),
)
def test_any_chunking_at_any_rate_gives_the_offline_scores(rate, block, shares, tiny) -> None:
    x = sound(rate)
    cuts = [int(share * x.shape[1]) for share in shares] + list(range(100, 100 + tiny))
    logits, times = pushed(StreamingSession(BUNDLE, rate, block=block), x[0], cuts)
    np.testing.assert_allclose(logits, offline(BUNDLE, x, rate), atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(times, np.arange(1, len(times) + 1) / 100)


def test_sample_by_sample_gives_each_frame_with_its_last_sample() -> None:
    x, session, given_at = sound(RATE), StreamingSession(BUNDLE, RATE), []
    for i in range(800):
        frames = session.push(x[0, i : i + 1])
        given_at += [i + 1] * len(frames.times)
    assert given_at == [160, 320, 480, 640, 800]


@pytest.mark.parametrize("front", [LinearFront(), LogMelFront(n_mels=6)], ids=["linear", "log-mel"])
def test_other_fronts_stream_too(front) -> None:
    bundle, x = make(front=front), sound(RATE)
    session = StreamingSession(bundle, RATE)
    logits, times = pushed(session, x[0], [1, 2, 700, 701, 5000])
    every = round(RATE / session.frame_rate) if isinstance(front, LinearFront) else 1
    np.testing.assert_allclose(logits, offline(bundle, x, RATE)[:, every - 1 :: every], atol=1e-4, rtol=1e-4)
    assert session.frame_rate == 100 and times[0] == 0.01


def test_long_chunks_are_taken_in_pieces_of_bounded_size(monkeypatch) -> None:
    bundle, x = make(front=LinearFront()), sound(RATE)
    whole, _ = pushed(StreamingSession(bundle, RATE), x[0], [])
    monkeypatch.setattr("kws_s5.listening.torch_engine.STEPS", 1000)
    pieces, _ = pushed(StreamingSession(bundle, RATE), x[0], [])
    np.testing.assert_allclose(pieces, whole, atol=1e-4, rtol=1e-4)


def test_many_streams_equal_each_alone() -> None:
    x = sound(RATE, 3)
    together, _ = pushed(StreamingSession(BUNDLE, RATE, n_streams=3), x, [10, 3000, 9001])
    for row, logits in zip(x, together, strict=True):
        alone, _ = pushed(StreamingSession(BUNDLE, RATE), row, [500])
        np.testing.assert_allclose(logits[None], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: (x * 32768).astype(np.int16),
        lambda x: (x * 2.0**31).astype(np.int32),
        lambda x: x.astype(np.float64),
        lambda x: torch.from_numpy(x),
        lambda x: np.stack([x, x], 1),
        lambda x: np.stack([x, x, x], 0),
        lambda x: x.tolist(),
    ],
    ids=["int16", "int32", "float64", "torch", "(l, 2)", "(3, l)", "list"],
)
def test_every_type_and_layout_is_the_same_sound(convert) -> None:
    x = (sound(RATE)[0] * 32768).round().astype(np.int16).astype(np.float32) / 32768
    expected, _ = pushed(StreamingSession(BUNDLE, RATE), x, [])
    session = StreamingSession(BUNDLE, RATE)
    got = np.concatenate([session.push(convert(x[a : a + 4000])).logits for a in range(0, len(x), 4000)], 1)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_channels_keep_their_axis_also_in_the_shortest_chunks() -> None:
    x = sound(RATE, 2)
    session, whole = StreamingSession(BUNDLE, RATE), StreamingSession(BUNDLE, RATE).push(x.mean(0))
    parts = [session.push(x[:, a:b].T) for a, b in [(0, 100), (100, 101), (101, 103), (103, 103), (103, 20800)]]
    np.testing.assert_allclose(np.concatenate([p.logits for p in parts], 1), whole.logits, atol=1e-4)
    with pytest.raises(UserError, match="3 channels, before it were 2"):
        session.push(np.zeros((50, 3), np.float32))
    with pytest.raises(UserError, match="channel_axis"):
        StreamingSession(BUNDLE, RATE).push(np.zeros((1, 2), np.float32))
    assert StreamingSession(BUNDLE, RATE, channel_axis=1).push(np.zeros((1, 2), np.float32)).logits.shape[1] == 0


def test_after_a_reset_a_session_is_new_and_may_have_another_rate() -> None:
    x, y, session = sound(RATE), sound(8000, seed=1), StreamingSession(BUNDLE, RATE)
    session.push(x[0])
    session.reset(8000)
    logits, times = pushed(session, y[0], [77])
    np.testing.assert_allclose(logits, offline(BUNDLE, y, 8000), atol=1e-4, rtol=1e-4)
    assert times[0] == 0.01 and session.seconds == SECONDS


def test_the_rate_cannot_change_inside_a_session() -> None:
    session = StreamingSession(BUNDLE, RATE)
    session.push(sound(RATE)[0, :1000], RATE)
    with pytest.raises(UserError, match=r"16000 Hz, but the chunk has 8000 Hz.*reset"):
        session.push(sound(8000)[0], 8000)
    assert session.seconds == 1000 / RATE  # nothing was taken


@pytest.mark.parametrize("bundle", [BUNDLE, make(bidirectional=True, head=ClassHead())], ids=["causal", "sliding"])
def test_a_saved_state_goes_on_in_another_session(bundle, tmp_path) -> None:
    x = sound(RATE)[0]
    expected, _ = pushed(StreamingSession(bundle, RATE), x, [])
    first, second = StreamingSession(bundle, RATE), StreamingSession(bundle, RATE)
    a = first.push(x[:7777])
    save_file(first.state(), tmp_path / "state.safetensors")
    sizes = {name: value.shape for name, value in first.state().items()}
    second.restore(load_file(tmp_path / "state.safetensors"))
    b = second.push(x[7777:])
    np.testing.assert_allclose(np.concatenate([a.logits, b.logits], 1), expected, atol=1e-4, rtol=1e-4)
    assert second.seconds == SECONDS and {n: v.shape for n, v in second.state().items()} == sizes
    assert b.times[0] == pytest.approx(a.times[-1] + 1 / first.frame_rate)


def test_a_foreign_state_is_refused() -> None:
    state = StreamingSession(BUNDLE, RATE).state()
    with pytest.raises(UserError, match="8000 Hz"):
        StreamingSession(BUNDLE, 8000).restore(state)
    with pytest.raises(UserError, match="another model or another number"):
        StreamingSession(BUNDLE, RATE, n_streams=2).restore(state)
    with pytest.raises(UserError, match="no rate"):
        StreamingSession(BUNDLE, RATE).restore({})


def test_models_of_whole_clips_look_at_a_sliding_window_and_say_so() -> None:
    bundle, x = make(bidirectional=True, head=ClassHead()), sound(8000)[0]
    session = StreamingSession(bundle, 8000)
    assert "bidirectional" in session.remark and "last 0.5 s every 100 ms" in session.remark
    logits, times = pushed(session, x, [1, 2, 799, 800, 5001])
    np.testing.assert_allclose(times, np.arange(1, 14) / 10)
    with torch.no_grad():
        for logit, time in zip(logits[0], times, strict=True):
            end = round(time * 8000)
            clip = np.concatenate([np.zeros(4000, np.float32), x])[end : end + 4000]
            alone = bundle.model(torch.from_numpy(clip)[None, :, None], step_rescale=2.0)[0]
            np.testing.assert_allclose(logit, alone, atol=1e-4, rtol=1e-4)
    assert StreamingSession(BUNDLE, RATE).remark == ""
    assert "without frame decisions" in StreamingSession(make(head=ClassHead()), RATE).remark


def test_an_hour_leaves_no_trace_in_memory() -> None:
    session = StreamingSession(BUNDLE, 8000)
    sizes = {name: value.shape for name, value in session.state().items()}
    for _ in range(60):
        session.push(np.zeros(8000 * 60, np.int16))
    assert session.seconds == 3600 and not session._pending[1:]
    assert {name: value.shape for name, value in session.state().items()} == sizes


def test_what_cannot_be_heard_is_refused_in_one_line() -> None:
    session = StreamingSession(BUNDLE, RATE, n_streams=2)
    for chunk, words in [
        ([np.zeros(5), np.zeros(6)], "different lengths"),
        ([np.zeros(5)], "1 pieces for 2"),
        (3.0, "one for each stream"),
        ([np.full(5, np.nan), np.zeros(5)], "NaN"),
    ]:
        with pytest.raises(UserError, match=words):
            session.push(chunk)
    with pytest.raises(UserError, match="labels"):
        StreamingSession(replace(BUNDLE, labels=()), RATE)
    with pytest.raises(UserError, match="outside"):
        StreamingSession(BUNDLE, 100)


@pytest.mark.parametrize("head", [ClassHead(frame_logits=True, window=0.3), ClassHead()], ids=["causal", "sliding"])
def test_weights_that_give_no_numbers_are_one_error(head) -> None:
    bundle = make(head=head)
    with torch.no_grad():
        bundle.model.head.decoder.weight.fill_(3e38)
    with pytest.raises(UserError, match="NaN or infinity instead of scores"):
        StreamingSession(bundle, RATE).push(sound(RATE)[0])
