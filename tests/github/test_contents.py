"""A file of a commit, and nothing but a file."""

from __future__ import annotations

import pytest

from onnx_gate.errors import UserError
from onnx_gate.github.client import Client
from onnx_gate.github.contents import read_file
from tests.support.github.server import REPOSITORY, GitHub
from tests.support.github.state import BASE


@pytest.mark.parametrize(
    "path", ["onnx-gate.yml", "a b/ü#?&%2e;x.yml", "über/ä+ö.yml", "deep/er/x.yml"]
)
def test_a_file(github: GitHub, client: Client, path: str) -> None:
    data = bytes(range(256)) * 40
    github.add_file(path, BASE, data)
    assert read_file(client, REPOSITORY, path, BASE) == data
    assert read_file(client, REPOSITORY, path, "4" * 40) is None
    assert read_file(client, REPOSITORY, f"{path}.not", BASE) is None


@pytest.mark.parametrize("path", ["", "/x", "a//b", "../x", "a/../../../user", "./x", "a\0b"])
def test_a_path_that_leads_elsewhere_is_not_asked_for(
    github: GitHub, client: Client, path: str
) -> None:
    with pytest.raises(UserError, match="is not the path"):
        read_file(client, REPOSITORY, path, BASE)
    assert github.requests == []


def test_what_is_no_file_or_too_large_is_a_sentence(github: GitHub, client: Client) -> None:
    github.add_file("folder/x.yml", BASE, b"x")
    with pytest.raises(UserError, match="folder at 4f1c2e9 is not a file"):
        read_file(client, REPOSITORY, "folder", BASE)
    github.add_file("large.yml", BASE, bytes(2**20))
    with pytest.raises(UserError, match="larger than"):
        read_file(client, REPOSITORY, "large.yml", BASE)
    with pytest.raises(UserError, match="larger than 0"):
        read_file(client, REPOSITORY, "folder/x.yml", BASE, max_bytes=0)
    github.add_file("empty.yml", BASE, b"")
    assert read_file(client, REPOSITORY, "empty.yml", BASE) == b""
