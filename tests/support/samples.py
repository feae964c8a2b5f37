"""The workflows of the documentation, as somebody would copy them."""

from __future__ import annotations

import re
import textwrap

from tests.support.gate import ROOT

_FENCE = re.compile(r"^```yaml\n(.*?)^```", re.M | re.S)

FENCES = {
    f"{page.name}-{number}": textwrap.dedent(text)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, text in enumerate(_FENCE.findall(page.read_text(encoding="utf-8")))
    if "uses:" in text
}
"""Everything that uses an action, whole workflows and single steps, by page and number."""

SAMPLES = {name: text for name, text in FENCES.items() if text.startswith("name:")}
"""Whole workflows."""
