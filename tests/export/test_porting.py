"""docs/porting.md: its code runs as it stands, its table names the tensors of the graph, its figures hold."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from kws_s5.export.export import constants_of, export
from kws_s5.export.model_graph import state_of, zero_state

PAGE = (Path(__file__).parents[2] / "docs" / "porting.md").read_text(encoding="utf-8")


def test_the_loop_of_the_page_gives_the_logits_of_torch(shipped, speech, tmp_path, monkeypatch) -> None:
    export(shipped, "commands12", tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    x, rows = speech(44_100.0), []
    code = code.replace("    state = dict(", "    rows.append(logits)\n    state = dict(")
    exec(compile(code, "porting.md", "exec"), {"sound": x[0], "rows": rows})  # noqa: S102 - our own page
    with torch.no_grad():
        expected = shipped.model.frame_logits(torch.from_numpy(x)[..., None], step_rescale=16_000 / 44_100).numpy()
    np.testing.assert_allclose(np.concatenate(rows, 1), expected, atol=1e-4)


def test_the_numpy_lines_of_the_page_give_the_logits_of_torch(shipped, speech) -> None:
    _, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {"chunk": speech(16_000.0)[0]}
    exec(compile(code, "porting.md", "exec"), found)  # noqa: S102 - our own page
    with torch.no_grad():
        expected = shipped.model.frame_logits(torch.from_numpy(found["chunk"])[None, :, None]).numpy()
    np.testing.assert_allclose(found["logits"], expected[0], atol=1e-4)


def test_the_table_names_every_tensor(shipped) -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert named == {"sound", "rate", "logits", *state_of(constants_of(shipped), free_rate=True)}


def test_the_state_is_as_small_as_the_page_says(shipped) -> None:
    state = zero_state(constants_of(shipped), 1, free_rate=False)
    (stated,) = re.findall(r"([\d.]+) kB a stream", PAGE)
    assert sum(value.nbytes for value in state.values()) == pytest.approx(1000 * float(stated), rel=0.06)
