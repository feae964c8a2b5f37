"""``generator``: a function of the user's that makes the cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import GeneratorSuite
from onnx_gate.runtimes.base import first_line
from onnx_gate.verify.build import load_function
from onnx_gate.verify.inputs.suites.base import Draft, SuiteContext, as_array, check_arrays


class GeneratorCases:
    """``{generator: tests/inputs.py:cases}``: ``(inputs, seed) -> iterable of dicts``.

    ``inputs`` maps each input's name to its ``InputSpec`` (dtype, shape, range).
    """

    def cases(self, suite: GeneratorSuite, context: SuiteContext) -> Iterator[Draft]:
        """Yield the function's dictionaries, numbered in order."""
        where = f"suites.{context.name}"
        function = load_function(suite.generator, context.workspace, where)
        try:
            produced = iter(function(dict(context.inputs), suite.seed))
        except Exception as error:
            raise _raised(where, suite, error) from error
        number = 0
        while True:
            try:
                item = next(produced)
            except StopIteration:
                return
            except Exception as error:
                raise _raised(where, suite, error) from error
            if not isinstance(item, Mapping):
                raise codes.OG108.error(
                    f"{where}: {suite.generator} yielded a {type(item).__name__}; "
                    "each case is a dictionary from input names to arrays"
                )
            shown = f"{where}: case {number} of {suite.generator}"
            arrays = {str(k): as_array(v, f"{shown}: {k}") for k, v in item.items()}
            yield Draft((str(number),), arrays, check_arrays(arrays, context.inputs, shown))
            number += 1


def _raised(where: str, suite: GeneratorSuite, error: Exception) -> GateError:
    return codes.OG108.error(
        f"{where}: {suite.generator} raised {type(error).__name__}: {first_line(error)}"
    )
