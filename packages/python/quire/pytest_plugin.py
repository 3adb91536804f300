"""The fixture `quire_server`: one server for all tests of a run."""

from __future__ import annotations

from typing import Iterator

import pytest

from ._server import Server


@pytest.fixture(scope="session")
def quire_server() -> Iterator[Server]:
    """A running `quire.Server`; tests keep apart by the names of their databases."""
    with Server() as server:
        yield server
