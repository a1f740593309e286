"""These tests are about the compiled layer itself: the switch says auto, whatever the environment says."""

import pytest

import kws_s5.ops


@pytest.fixture(autouse=True)
def compiled_layer():
    with kws_s5.ops.use("auto"):
        yield
