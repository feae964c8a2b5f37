from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnx_gate.github.client import Client
from tests.support.github.clients import client_for
from tests.support.github.server import GitHub


@pytest.fixture
def github() -> Iterator[GitHub]:
    """A server; the test fails where a request or an answer breaks GitHub's description."""
    with GitHub() as server:
        yield server
    assert server.violations == []


@pytest.fixture
def client(github: GitHub) -> Client:
    return client_for(github)
