"""What a file is to be loaded by, wherever it is deployed: packages and their oldest versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator

from onnx_gate.manifest.values.base import mistake, text_schema, words
from onnx_gate.text import did_you_mean, quote

# The packages of which is known what they load, and the oldest version.
TARGETS = {
    "onnxruntime": (1, 16),
    "onnxruntime-web": (1, 17),
    "openvino": (2024, 3),
    "opencv": (4, 8),
}
_PATTERN = r"([A-Za-z0-9_-]+)(>=([0-9]+)\.([0-9]+)(\.[0-9]+)*)?"
_SPELLED = re.compile(_PATTERN)


@dataclass(frozen=True)
class Target:
    """A package, and the oldest version of it that has to load the file."""

    name: str
    least: tuple[int, int]

    def __str__(self) -> str:
        """Return it as the manifest spells it."""
        return f"{self.name}>={self.least[0]}.{self.least[1]}"


def _read(value: Any) -> Target:
    text = words(value, "a package such as onnxruntime>=1.17").replace(" ", "")
    match = _SPELLED.fullmatch(text)
    name = re.split("[<>=~!]", text)[0]
    if name not in TARGETS:
        raise mistake(f"nothing is known of what {quote(name)} loads{did_you_mean(name, TARGETS)}")
    if match is None:
        raise mistake(f"{quote(text)} is no package with a version; write onnxruntime>=1.17")
    least = (int(match[3]), int(match[4])) if match[2] else TARGETS[name]
    if least < TARGETS[name]:
        oldest = ".".join(map(str, TARGETS[name]))
        raise mistake(f"nothing is known of {text} before {oldest}; write {name}>={oldest}")
    return Target(name, least)


TargetChoice = Annotated[
    Target, PlainValidator(_read), text_schema("target", pattern=f"^{_PATTERN}$")
]
