"""The inputs that ``steps`` speaks of: do they exist, and can they be given what they are to be fed?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx_gate.manifest.nesting import above, below
from onnx_gate.manifest.problems import Keys
from onnx_gate.manifest.values.inputs import InputSpec
from onnx_gate.manifest.values.shapes import INTEGER_BOUNDS
from onnx_gate.manifest.values.steps import StepsSpec
from onnx_gate.text import did_you_mean, quote


def wholes(names: Iterable[str]) -> tuple[str, ...]:
    """Return dotted names and everything that holds one of them, each once, the outermost first."""
    return tuple(dict.fromkeys(whole for name in names for whole in reversed(above(name))))


def mistakes(spec: StepsSpec, inputs: Mapping[str, InputSpec]) -> Iterator[tuple[Keys, str]]:
    """Yield where in ``steps``, and what, is wrong with the inputs that it names."""
    taken: dict[str, str] = {}
    for section, names in (("carry", spec.carry), ("feed", spec.feed)):
        for name in names:
            own = below(name, inputs)
            if not own:
                hint = did_you_mean(name, wholes(inputs))
                yield (section, name), f"unknown input {quote(name)}{hint}"
            twice = next((taken[each] for each in own if each in taken), None)
            if twice is not None:
                yield (
                    (section, name),
                    f"{quote(name)} holds what {quote(twice)} holds too; name it once",
                )
            taken |= dict.fromkeys(own, name)
    for name, feed in spec.feed.items():
        dtypes = {inputs[each].dtype for each in below(name, inputs)}
        if feed.argmax and not dtypes <= INTEGER_BOUNDS.keys():
            listed = ", ".join(sorted(dtypes))
            yield ("feed", name), f"an argmax is an integer, and {quote(name)} is {listed}"
