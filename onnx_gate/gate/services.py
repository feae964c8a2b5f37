"""What the runtimes of a run share, such as one browser: started once, before any model's process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Protocol

from onnx_gate.manifest import ModelSpec
from onnx_gate.plugins import plugins
from onnx_gate.workers.launch import Launch, ServiceLaunch

ENTRY_POINT_GROUP = "onnx_gate.services"


class Service(Protocol):
    """Something that runs beside the models' processes, registered under its runtime's name.

    Its class is called to start it and raises ``OSError`` where it cannot; sessions of the runtime
    find it by ``variables``, and say themselves what is wrong where there is none. ``versions`` are
    what verdicts rest on that no Python package has the version of.
    """

    variables: Mapping[str, str]

    def __init__(self, confined: ServiceLaunch | None) -> None:
        """Start it: ``confined`` says how where models are in a sandbox."""

    @staticmethod
    def versions() -> Mapping[str, str]:
        """Return a version or a digest for each thing that the numbers depend on."""
        ...

    def close(self) -> None:
        """End it, and all that came from it."""
        ...


def versions(models: Iterable[ModelSpec]) -> dict[str, str]:
    """Return what the verdicts of these models rest on in the services of their runtimes."""
    return {name: value for kind in _kinds(models) for name, value in kind.versions().items()}


@contextmanager
def running(models: Iterable[ModelSpec], launch: Launch) -> Iterator[Launch]:
    """Run the services of the models' runtimes, and yield how models are started beside them."""
    with ExitStack() as stack:
        variables: dict[str, str] = {}
        # What serves a stranger's model is never started with rights that the model lacks.
        confined = bool(launch.prefix)
        for kind in _kinds(models) if not confined or launch.services is not None else ():
            with suppress(OSError):
                service = kind(launch.services if confined else None)
                stack.callback(service.close)
                variables |= service.variables
        # A fork of this process has its environment, whatever the launch says.
        stack.enter_context(_set(variables))
        if launch.environment is not None:
            launch = replace(launch, environment={**launch.environment, **variables})
        if launch.prefix:  # what enters a sandbox clears the environment
            given = (f"{name}={value}" for name, value in variables.items())
            launch = replace(launch, prefix=(*launch.prefix, "/usr/bin/env", *given))
        yield launch


def _kinds(models: Iterable[ModelSpec]) -> Iterator[type[Service]]:
    names = {runtime.name for model in models for runtime in model.runtimes}
    for entry in sorted(plugins(ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        if entry.name in names:
            yield entry.load()


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
