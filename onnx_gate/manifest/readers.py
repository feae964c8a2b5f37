"""How each single value of a manifest is read.

Each reader takes what YAML gave and returns the value, or raises a sentence for the user.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticCustomError

from onnx_gate.manifest import shapes
from onnx_gate.manifest.nesting import CACHES
from onnx_gate.manifest.paths import is_program
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.spec import EDGE_KINDS, OPTIMIZATIONS, Feed
from onnx_gate.text import did_you_mean, quote

MAX_TEXT = 1000
_IDENTIFIER = re.compile(shapes.NAME)
_DOTTED = re.compile(rf"{shapes.NAME}(\.{shapes.NAME})*")
_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
_CALL = re.compile(r"(\w+)\(\s*([^()]*[^()\s])\s*\)")
_COUNTED = re.compile(r"([^()+*]*[^()+*\s])\s*\+\s*(\d{1,9})")
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([KMGT]i?B|B)")
_UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
LONGEST = 7 * 24 * 3600
LEAST_MEMORY = 2**20


def mistake(message: str) -> PydanticCustomError:
    """An error whose message is shown to the user as it is."""
    return PydanticCustomError("manifest", "{message}", {"message": message})


def _checked(check: Callable[..., Any], *values: Any) -> Any:
    try:
        return check(*values)
    except ValueError as error:
        raise mistake(str(error)) from None


def _words(value: Any, expected: str) -> str:
    """Text of a sane length without control characters."""
    if not isinstance(value, str):
        raise mistake(f"expected {expected}, found {describe(value)}")
    if not value.strip():
        raise mistake(f"expected {expected}, found empty text")
    if len(value) > MAX_TEXT:
        raise mistake(f"{len(value)} characters are too many; write at most {MAX_TEXT}")
    if not value.isprintable():
        raise mistake(f"{quote(value)} has characters that cannot be printed; remove them")
    return value


def read_reason(value: Any) -> str:
    """Any text that is not empty, on one line or several."""
    if isinstance(value, str):
        value = " ".join(value.split())
    return _words(value, "text")


def read_name(value: Any) -> str:
    """A name that is safe in reports, case ids and file names."""
    name = _words(value, "a name")
    if len(name) > 100:
        raise mistake(f"a name of {len(name)} characters is too long; use at most 100")
    if "/" in name or not name.strip("."):
        raise mistake(f"{quote(name)} cannot be a name; use letters, digits, '.', '-' and '_'")
    return name


def read_tensor_name(value: Any) -> str:
    """The name of an input or an output."""
    return _words(value, "the name of a tensor")


def read_feed(value: Any) -> Feed:
    """``argmax(logits)``, the name of an output, or ``position_ids + 1``."""
    text = _words(value, "an output, argmax(output), or the input itself + 1")
    call = _CALL.fullmatch(text)
    if call is not None:
        if call[1] != "argmax":
            hint = did_you_mean(call[1], ("argmax",))
            raise mistake(f"unknown function {quote(call[1])}{hint}")
        return Feed(call[2], argmax=True)
    counted = _COUNTED.fullmatch(text)
    if counted is not None:
        return Feed(counted[1], add=int(counted[2]))
    if any(sign in text for sign in "()+*"):
        raise mistake(
            f"{quote(text)} is neither an output, nor argmax(output), nor the input itself + 1"
        )
    return Feed(text)


def read_identifier(value: Any) -> str:
    """The name of a Python argument or of a dynamic dimension."""
    name = _words(value, "a name")
    if not _IDENTIFIER.fullmatch(name) or len(name) > 100:
        raise mistake(f"{quote(name)} is not a name; use letters, digits and '_', no digit first")
    return name


def read_reference(value: Any, example: str = "models/resnet.py:build") -> str:
    """``path/to/file.py:attribute`` or ``package.module:attribute``."""
    text = _words(value, f"file.py:attribute or package.module:attribute, such as {example}")
    where, colon, attribute = text.rpartition(":")
    if not colon:
        raise mistake(f"{quote(text)} names no attribute; write it after a colon, as in {example}")
    if not _DOTTED.fullmatch(attribute):
        raise mistake(
            f"{quote(attribute)} is not the name of an attribute; write one as in {example}"
        )
    if where.endswith(".py"):
        read_path(where)
    elif not _DOTTED.fullmatch(where):
        raise mistake(
            f"{quote(where)} is neither a .py file nor a dotted module; write {example} "
            f"or {example.replace('/', '.').replace('.py:', ':')}"
        )
    return text


def read_model(value: Any) -> str:
    """A reference to what makes the module, or the path of a TorchScript file."""
    if is_program(value):
        return read_path(value)
    return read_reference(value)


def read_path(value: Any) -> str:
    """A path below the manifest's folder; whether anything is there is checked later."""
    path = _words(value, "a path relative to the manifest's folder")
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise mistake(f"{quote(path)} is absolute; write it relative to the manifest's folder")
    if "\\" in path:
        raise mistake(f"{quote(path)} has a backslash; write / between folders")
    if ".." in path.split("/"):
        raise mistake(f"{quote(path)} leaves the manifest's folder; keep the file inside it")
    return path


def read_onnx(value: Any) -> str:
    """The path of an ONNX file."""
    path = read_path(value)
    if not path.endswith(".onnx"):
        raise mistake(f"{quote(path)} cannot be read; the file must end in .onnx")
    return path


def read_globs(value: Any) -> Any:
    """One glob, or a list of them, as a list."""
    return [value] if isinstance(value, str) else value


# What is also said for an exporter, or for an execution provider: spelling is no guide to these.
_EXPORTERS_MEANT = {
    "onnxscript": "dynamo",
    "torch.export": "dynamo",
    "torch_export": "dynamo",
    "export": "dynamo",
    "fx": "dynamo",
    "script": "torchscript",
    "scripting": "torchscript",
    "trace": "torchscript",
    "tracing": "torchscript",
    "jit": "torchscript",
    "torch.jit": "torchscript",
    "legacy": "torchscript",
}
_PROVIDERS_MEANT = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "trt": "tensorrt",
    "amd": "migraphx",
    "directml": "dml",
    "apple": "coreml",
    "metal": "coreml",
    "mps": "coreml",
    "intel": "openvino",
}


def read_provider(value: Any) -> Any:
    """An execution provider, as ONNX Runtime calls it."""
    text = read_identifier(value)
    meant = _PROVIDERS_MEANT.get(text.lower())
    if meant is not None:
        raise mistake(
            f"no execution provider is called {quote(text)}; did you mean {quote(meant)}?"
        )
    return text


def read_exporter(value: Any) -> str:
    """``dynamo``, ``torchscript`` or a reference to a function."""
    text = _words(value, "dynamo, torchscript or package.module:function")
    if text in ("dynamo", "torchscript"):
        return text
    if ":" not in text:
        meant = _EXPORTERS_MEANT.get(text.lower())
        known = ("dynamo", "torchscript")
        likeness = f"; did you mean {quote(meant)}?" if meant else did_you_mean(text, known)
        raise mistake(f"unknown exporter {quote(text)}{likeness} (or package.module:function)")
    return read_reference(text, "export/custom.py:export")


def read_dtype(value: Any) -> Any:
    """One of the dtypes."""
    return _checked(shapes.check_dtype, _words(value, "a dtype such as float32"))


def read_dimension(value: Any) -> Any:
    """A static size, or the name of a dynamic dimension."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise mistake(f"expected a size or the name of a dimension, found {describe(value)}")
    return _checked(shapes.check_dimension, value)


def read_cache(value: Any) -> str:
    """One of the kinds of caches."""
    if isinstance(value, str) and value in CACHES:
        return value
    if value == "static":
        raise mistake(
            "a static cache keeps its position to itself, which no graph does; use cache: dynamic, or "
            "give the module its keys, values and position as inputs"
        )
    likeness = did_you_mean(value, CACHES) if isinstance(value, str) else ""
    raise mistake(f"unknown kind of cache {quote(value)}{likeness or '; write dynamic'}")


def read_sizes(value: Any) -> Any:
    """One size, or a list of them, as a list."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def read_bound(value: Any) -> Any:
    """One end of a range: a finite number, or one that is computed from dynamic dimensions."""
    if isinstance(value, str) and value.strip():
        return _checked(shapes.check_bound, value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise mistake(f"expected a finite number, found {describe(value)}")
    return value


def read_edge(value: Any) -> Any:
    """One of the kinds of edge cases."""
    if value not in EDGE_KINDS or not isinstance(value, str):
        likeness = did_you_mean(value, EDGE_KINDS) if isinstance(value, str) else ""
        raise mistake(f"unknown kind of edge case {quote(value)}{likeness}")
    return value


def unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values themselves; an error where one is there twice."""
    seen = set()
    for value in values:
        if value in seen:
            raise mistake(f"{describe(value)} is listed twice; remove one")
        seen.add(value)
    return values


def read_duration(value: Any) -> float:
    """Seconds, from a number of them or from ``90s``, ``10m``, ``1h30m``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        text = _words(value, "a duration such as 90s, 10m or 1h30m, or a number of seconds")
        match = _DURATION.fullmatch(text.replace(" ", ""))
        if match is None:
            raise mistake(f"{quote(text)} is not a duration; write 90s, 10m or 1h30m")
        hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = float(hours * 3600 + minutes * 60 + rest)
    if not 0 < seconds <= LONGEST:
        raise mistake(f"{describe(value)} is no useful duration; write more than 0s, at most 168h")
    return seconds


def read_memory(value: Any) -> int:
    """Bytes, from a number of them or from ``8GiB``, ``512MiB``, ``8GB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        text = _words(value, "an amount of memory such as 8GiB, 512MiB or 8GB")
        match = _MEMORY.fullmatch(text)
        if match is None:
            raise mistake(f"{quote(text)} is not an amount of memory; write 8GiB, 512MiB or 8GB")
        size = int(float(match[1]) * _UNITS[match[2]])
    if not LEAST_MEMORY <= size < 2**60:
        raise mistake(f"{size} bytes is no useful limit; write it with a unit, as in 8GiB")
    return size


def read_date(value: Any) -> datetime.date:
    """A day, ``2027-03-31``."""
    text = _words(value, "a date such as 2027-03-31")
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    raise mistake(f"{quote(text)} is not a date; write year-month-day, as in 2027-03-31")


def read_flag(value: Any) -> bool:
    """true or false, in the words of YAML 1.1 too."""
    words = {"yes": True, "on": True, "no": False, "off": False}
    found = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise mistake(f"expected true or false, found {describe(value)}")
    return found


def read_optimization(value: Any) -> Any:
    """One of the levels; YAML 1.1 reads ``off`` as false."""
    if value is False:
        return "off"
    if not isinstance(value, str) or value not in OPTIMIZATIONS:
        likeness = did_you_mean(value, OPTIMIZATIONS) if isinstance(value, str) else ""
        raise mistake(
            f"unknown optimization level {quote(value)}{likeness or '; write off or all'}"
        )
    return value


def read_option(value: Any) -> str:
    """An option of ONNX Runtime, which takes text only."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return value
    raise mistake(f"expected text or a number, found {describe(value)}")


def written(value: Any) -> Any:
    """The value itself; an error where the key has none."""
    if value is None:
        raise mistake("nothing is written here; write a value or remove the key")
    return value
