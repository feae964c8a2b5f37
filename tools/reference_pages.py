"""``docs/cli.md`` and ``docs/api.md``, from the commands and from the source that documents itself."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from onnx_gate.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
_CLI = """\
# The command line

<!-- Written by tools/reference_pages.py from onnx_gate/cli/. -->

`onnx-gate COMMAND --help` says the same. The manifest is looked for upwards from where a command is
called, as `onnx-gate.yml` or `onnx-gate.yaml`, up to the repository's own folder.
`onnx-gate --install-completion` teaches the shell the commands, the options and the names of the models.
Width and colour are the terminal's, or what `COLUMNS`, `NO_COLOR` and `FORCE_COLOR` say. What the exit
statuses mean is on [a page of its own](exit-codes.md).
"""
_API = """\
# Python

<!-- Written by tools/reference_pages.py from onnx_gate/api.py and onnx_gate/pytest_plugin.py. -->

How to use it is [a how-to](how-to/python.md). `import onnx_gate` imports nothing of torch until one of
these is used.
"""
_PLUGIN = """\
## The pytest plugin

`pytest --onnx-gate` collects the models of the manifest, which is looked for upwards from the root folder;
`pytest path/to/onnx-gate.yml` collects those of that one. Reports and logs are in `onnx-gate-report`.
"""


def cli() -> str:
    """Return ``docs/cli.md``."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("onnx-gate", ["schema"])
    return "\n".join([_CLI, *_commands(context, group)])


def _commands(parent: Any, group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(parent, command, f"{before}{name} ")
        else:
            yield _command(parent, command, f"{before}{name}")


def _command(parent: Any, command: Any, name: str) -> str:
    context = command.context_class(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    rows = [_row(*record) for each in command.params if (record := each.get_help_record(context))]
    table = ["| argument | meaning |", "| --- | --- |", *rows, ""] if rows else []
    help_text = _paragraphs(inspect.cleandoc(command.help or ""))
    return "\n".join([f"## {name}", "", f"`onnx-gate {name} {usage}`", "", help_text, "", *table])


def _row(names: str, meaning: str) -> str:
    # What click puts in brackets of its own is not a link.
    shown = re.sub(r" *\[(default|env var): ([^;\]]+)[^\]]*\]", r" (\1: `\2`)", meaning)
    return f"| `{names}` | {shown} |".replace("N|auto", "N\\|auto")


def api() -> str:
    """Return ``docs/api.md``."""
    source = (ROOT / "onnx_gate" / "api.py").read_text(encoding="utf-8")
    error = (ROOT / "onnx_gate" / "parity.py").read_text(encoding="utf-8")
    plugin = (ROOT / "onnx_gate" / "pytest_plugin.py").read_text(encoding="utf-8")
    functions = dict(_definitions(source)) | dict(_definitions(error))
    parts = [
        functions[name] for name in ("check_parity", "assert_parity", "ParityReport", "ParityError")
    ]
    fixture = dict(_definitions(plugin))["parity"].replace("## ", "### The fixture ", 1)
    return "\n".join([_API, *parts, _PLUGIN, fixture])


def _definitions(source: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of what a module defines, by name."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            section = [f"## {node.name}", ""]
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                section += ["```python", _signature(node), "```", ""]
            yield node.name, "\n".join([*section, _paragraphs(ast.get_docstring(node) or ""), ""])


def _signature(node: ast.FunctionDef) -> str:
    """Return a function's head, an argument a line where it is long."""
    takes = re.sub(r"(: [^,=]+)=", r"\1 = ", ast.unparse(node.args))
    gives = ast.unparse(node.returns) if node.returns is not None else "None"
    head = f"def {node.name}({takes}) -> {gives}"
    if len(head) <= 100:
        return head
    lines = re.sub(r", (?=\*?\*?\w+(?::|,|$)|\*,)", ",\n    ", takes)
    return f"def {node.name}(\n    {lines},\n) -> {gives}"


def _paragraphs(text: str) -> str:
    """Return a docstring as Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", text.replace("\b", "").strip())
