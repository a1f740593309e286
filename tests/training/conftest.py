"""Lets the tests of this folder share toys.py."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def splits():
    from toys import tones

    return tones()
