"""Write what is generated from the code: the pages of findings and manifest, and the schemas."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.findings import CATALOGUE
from onnx_gate.manifest import docs, jsonschema
from onnx_gate.report.io import schema_text

ROOT = Path(__file__).resolve().parent.parent


def findings_page() -> str:
    """Return ``docs/findings.md``."""
    lines = [
        "# Findings",
        "",
        "Every code that a report can hold. `onnx-gate explain OG102` prints the same text. A finding",
        "of severity *error* makes a model diverge, whatever its numbers say; a *warning* and a *note*",
        "do not. Codes that come with a verdict of `error` say why there is no verdict.",
        "",
        "<!-- Written by tools/generate.py from onnx_gate/findings/catalogue.py. -->",
        "",
        "| code | what |",
        "| --- | --- |",
        *(f"| [{e.code}](#{e.code.lower()}) | {e.title} |" for e in CATALOGUE.values()),
    ]
    for entry in CATALOGUE.values():
        lines += ["", f"## {entry.code}", "", f"**{entry.title.capitalize()}.** {entry.why}", ""]
        lines += [f"*How to mend it:* {entry.remedy}"]
    return "\n".join(lines) + "\n"


def generated() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {
        ROOT / "docs" / "findings.md": findings_page(),
        ROOT / "docs" / "manifest.md": docs.render(),
        ROOT / "schema" / "onnx-gate.schema.json": jsonschema.render(),
        ROOT / "schema" / "onnx-gate-report.schema.json": schema_text(),
    }


def main() -> None:
    """Write the files."""
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
