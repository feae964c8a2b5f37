from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.gate import Run


@pytest.fixture(scope="session")
def run_of(verify_manifest: Callable[..., Run]) -> Callable[[str], Run]:
    """Return a run by its name: those of tests/e2e, which are made once, and the two of this folder."""

    def run(name: str) -> Run:
        own = name in ("findings", "hints")
        return verify_manifest(f"findings/{name}.yml" if own else f"{name}.yml")

    return run
