"""The pytest plugin: the models of a manifest as tests, and the fixture ``parity``.

Nothing is collected unless it is asked for: by ``pytest --onnx-gate``, or by naming a manifest among the
arguments. Every pytest of an environment imports this file, so it imports nothing else of the gate.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnx_gate.manifest import ModelSpec
    from onnx_gate.report.model import ModelResult, Report

_NAMES = ("onnx-gate.yml", "onnx-gate.yaml")
_ASKED = pytest.StashKey[Path]()
"""The manifest that ``--onnx-gate`` asks for."""
_REACHED = pytest.StashKey[bool]()


def _worker() -> str:
    """Return which of pytest-xdist's processes this is, empty without them."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--onnx-gate``."""
    parser.getgroup("onnx-gate").addoption(
        "--onnx-gate",
        action="store_true",
        help="test the models of onnx-gate.yml too, which is looked for upwards from the root folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Put the manifest among what is collected, wherever ``testpaths`` lead."""
    if not config.getoption("--onnx-gate"):
        return
    from onnx_gate.errors import UserError
    from onnx_gate.manifest.find import find_manifest

    try:
        path = (config.rootpath / find_manifest(config.rootpath)).resolve()
    except UserError as error:
        raise pytest.UsageError(f"--onnx-gate: {error}") from None
    config.stash[_ASKED] = path
    if str(path) not in config.args:
        config.args.append(str(path))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ManifestCollector | None:
    """Collect a manifest that is asked for, or named among the arguments."""
    asked = parent.config.stash.get(_ASKED, None)
    # pytest drops an argument that lies below another one, and comes by the file all the same.
    here = asked is not None and file_path.resolve() == asked
    parent.config.stash[_REACHED] = parent.config.stash.get(_REACHED, False) or here
    if file_path.name in _NAMES and (here or parent.session.isinitpath(file_path)):
        return ManifestCollector.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fail where the manifest was asked for and not come by; take no model of it twice."""
    asked = config.stash.get(_ASKED, None)
    if asked is not None and not config.stash.get(_REACHED, False):
        shown = os.path.relpath(asked, config.invocation_params.dir)
        raise pytest.UsageError(
            f"--onnx-gate: pytest did not collect {shown}: norecursedirs, collect_ignore or --ignore"
            f" leave it out; name it, and not a folder that holds it: pytest {shown} ..."
        )
    models = {each.nodeid: each for each in reversed(items) if isinstance(each, ModelItem)}
    items[:] = [each for each in items if models.get(each.nodeid, each) is each]


class ManifestCollector(pytest.File):
    """A manifest; its mistakes are errors of the collection."""

    def collect(self) -> Iterator[ModelItem]:
        """Yield an item for each model."""
        from onnx_gate.manifest import ManifestError
        from onnx_gate.manifest.load import load

        self._reports: list[Report] = []
        try:
            self._manifest = load(Path(os.path.relpath(self.path)))
        except ManifestError as error:
            raise self.CollectError("\n".join(map(str, error.problems))) from None
        for spec in self._manifest.models:
            yield ModelItem.from_parent(self, name=spec.name, spec=spec)

    def report_of(self, item: ModelItem) -> Report:
        """Return the report of one model, verified now or with an earlier one."""
        from onnx_gate.report.join.verdict import count, overall

        if not self._verified(item.name):
            self._reports.append(self._verify(item))
        whole, result = self._verified(item.name)[0]
        alone = (result.model_copy(update={"required": True}),)
        changes = {"models": alone, "verdict": overall(alone), "counts": count(alone)}
        return whole.model_copy(update=changes).located(str(self._folder()))

    def _verified(self, name: str) -> list[tuple[Report, ModelResult]]:
        return [(r, model) for r in self._reports for model in r.models if model.name == name]

    def _verify(self, item: ModelItem) -> Report:
        """Verify the models of all selected tests, side by side; with pytest-xdist of this one."""
        from onnx_gate.gate.deliver import verify_manifest
        from onnx_gate.gate.options import Options
        from onnx_gate.report.io import to_json, write_text
        from onnx_gate.report.layout import Layout
        from onnx_gate.report.render.terminal import QUIET

        mine = [each for each in self.session.items if each.parent is self]
        names = (item.name,) if _worker() else tuple(each.name for each in mine)
        options = Options(output=self._folder(), models=tuple(map(glob.escape, names)))
        report = verify_manifest(self._manifest, options, QUIET)
        write_text(Layout(options.output).report, to_json(report))
        return report

    def _folder(self) -> Path:
        return Path(os.path.relpath(self.config.rootpath / "onnx-gate-report" / _worker()))


class ModelItem(pytest.Item):
    """One model of a manifest."""

    parent: ManifestCollector

    def __init__(self, *, spec: ModelSpec, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._spec = spec

    def runtest(self) -> None:
        """Look at the model's verdict; the first test of a manifest verifies its other models too."""
        report = self.parent.report_of(self)
        if report.verdict == "pass":
            return
        if not self._spec.required:
            pytest.xfail(f"{report.models[0].verdict}, and not required")
        from onnx_gate.parity import ParityError

        raise ParityError(report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the diagnosis; the traceback would be the gate's own."""
        from onnx_gate.errors import UserError
        from onnx_gate.parity import ParityError

        if isinstance(excinfo.value, ParityError | UserError):
            return str(excinfo.value).strip("\n")
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the line of the manifest."""
        return self.path, max(self._spec.line - 1, 0), f"{self.path.name}: {self.name}"


@pytest.fixture
def parity(tmp_path: Path) -> Callable[..., Report]:
    """``onnx_gate.assert_parity``, with logs and reproductions below ``tmp_path``."""

    def check(model: Any, inputs: Any, **options: Any) -> Report:
        __tracebackhide__ = True
        from onnx_gate.api import assert_parity

        count = len(list(tmp_path.glob("onnx-gate-*")))
        options.setdefault("output", tmp_path / f"onnx-gate-{count}")
        return assert_parity(model, inputs, **options)

    return check
