"""Write what is generated: the pages of findings and manifest, schemas, tables of benchmarks."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from onnx_gate.findings import CATALOGUE, Explanation
from onnx_gate.manifest import jsonschema
from onnx_gate.report.io import schema_text
from tools import blocks_plot, faults_page, manifest_page, reference_pages
from tools.tables import pages as tables

ROOT = Path(__file__).resolve().parent.parent
TEXTS = "onnx_gate/findings/texts"
WIDTH = 100
WORKFLOW = "<!-- The workflow is written by tools/generate.py from docs/workflows.md. -->"
_GROUPS = {
    "OG1": "The model and its graph",
    "OG2": "Building and exporting",
    "OG3": "Runtimes",
    "OG4": "Verdicts",
    "OG5": "Workers",
    "OG6": "Waivers",
    "OG7": "What usually is behind a divergence at one operator",
}


def findings_index() -> str:
    """Return ``docs/findings.md``."""
    lines = [
        "# Findings",
        "",
        "Every code that a report can hold, each with a page of its own; `onnx-gate explain OG102`",
        "prints the same text. A finding of severity *error* makes a model diverge, whatever its",
        "numbers say; a *warning* and a *note* do not. A code that comes with an error says why a",
        "model has no verdict of its own (see [exit statuses and verdicts](exit-codes.md)).",
        "",
        f"<!-- Written by tools/generate.py from {TEXTS}. -->",
    ]
    for prefix, heading in _GROUPS.items():
        lines += ["", f"## {heading}", "", "| code | what |", "| --- | --- |"]
        lines += [
            f"| [{entry.code}](findings/{entry.code}.md) | {entry.title} |"
            for entry in CATALOGUE.values()
            if entry.code.startswith(prefix)
        ]
    return "\n".join(lines) + "\n"


def finding_page(entry: Explanation) -> str:
    """Return ``docs/findings/OGnnn.md``."""
    return f"""\
# {entry.code}: {entry.title}

<!-- Written by tools/generate.py from {TEXTS}/{entry.code}.md. -->

*{entry.appears[0].upper()}{entry.appears[1:]}.*

{_linked(entry.meaning)}

## Why it matters

{_linked(entry.why)}

## How to fix it

{_linked(entry.remedy)}

## Example

{re.sub(r"^```text$.*?^```$", _message, entry.example, flags=re.M | re.S)}

---

[All findings](../findings.md)
"""


def _linked(text: str) -> str:
    return re.sub(r"\bOG\d{3}\b", r"[\g<0>](\g<0>.md)", text)


def _message(fence: re.Match[str]) -> str:
    """Return a fenced message, which is one long line, as the gate's answer."""
    text = fence[0].splitlines()[1:-1]
    filled = [part for line in text for part in textwrap.wrap(line, WIDTH)]
    return "\n".join(["onnx-gate says:", "", "```text", *filled, "```"])


def readme(text: str, workflows: str) -> str:
    """Return README.md with the workflow of docs/workflows.md's first section, which is tested."""
    workflow = _section_fence(workflows, "## One job")
    begin = text.index(WORKFLOW)
    shown = _section_fence(text[begin:], WORKFLOW)
    return text[:begin] + text[begin:].replace(shown, workflow, 1)


def tutorial(text: str, workflows: str) -> str:
    """Return docs/tutorial.md with the same workflow, as the file that it has the reader write."""
    title = 'title=".github/workflows/onnx-gate.yml"'
    workflow = _section_fence(workflows, "## One job").replace("```yaml", f"```yaml {title}", 1)
    return re.sub(
        rf"^```yaml {re.escape(title)}$.*?^```$", lambda _: workflow, text, flags=re.M | re.S
    )


def workflow(workflows: str) -> str:
    """Return the same workflow as the file that ``onnx-gate init`` writes."""
    return "".join(_section_fence(workflows, "## One job").splitlines(keepends=True)[1:-1])


def _section_fence(text: str, heading: str) -> str:
    match = re.search(r"^```yaml\n.*?^```$", text[text.index(heading) :], re.M | re.S)
    if match is None:
        raise ValueError(f"no workflow below {heading!r}")
    return match[0]


def generated() -> dict[Path, str]:
    """Return the text of every generated file."""
    files = {
        ROOT / "docs" / "findings.md": findings_index(),
        **{
            ROOT / "docs" / "findings" / f"{entry.code}.md": finding_page(entry)
            for entry in CATALOGUE.values()
        },
        ROOT / "docs" / "manifest.md": manifest_page.render(),
        ROOT / "docs" / "known-faults.md": tables.fill(faults_page.render()),
        ROOT / "docs" / "cli.md": reference_pages.cli(),
        ROOT / "docs" / "api.md": reference_pages.api(),
        **tables.pages(),
        **blocks_plot.pages(),
        ROOT / "schema" / "onnx-gate.schema.json": jsonschema.render(),
        ROOT / "schema" / "onnx-gate-report.schema.json": schema_text(),
    }
    page, workflows = ROOT / "README.md", ROOT / "docs" / "workflows.md"
    text = files.get(page) or page.read_text(encoding="utf-8")
    lesson = ROOT / "docs" / "tutorial.md"
    copied = workflows.read_text(encoding="utf-8")
    return {
        **files,
        page: readme(text, copied),
        lesson: tutorial(lesson.read_text(encoding="utf-8"), copied),
        ROOT / "onnx_gate" / "init" / "workflow.yml": workflow(copied),
    }


def main() -> None:
    """Write the files, and remove the pages of findings that are no more."""
    files = generated()
    for page in (ROOT / "docs" / "findings").glob("OG*.md"):
        if page not in files:
            page.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
