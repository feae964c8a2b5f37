"""``random``: numbers drawn from a distribution, the same ones on every machine."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_gate.manifest import RandomSuite
from onnx_gate.verify.inputs.draw import Source, draw
from onnx_gate.verify.inputs.sizes import concrete, sizes_label
from onnx_gate.verify.inputs.suites.base import Draft, SuiteContext


class RandomCases:
    """``{random: normal, count: 2, seed: 0}``: ``count`` draws at each combination of sizes.

    With ``spread`` the first combination (the example's) gets ``count`` draws, the others one.
    """

    def cases(self, suite: RandomSuite, context: SuiteContext) -> Iterator[Draft]:
        """Yield ``sizes/number`` for every combination and draw."""
        for place, sizes in enumerate(context.combinations):
            for number in range(1 if context.spread and place else suite.count):
                label = sizes_label(sizes)
                arrays = {
                    name: draw(
                        spec,
                        concrete(spec, sizes),
                        Source(suite.seed, context.name, label, number, name),
                        suite.random,
                    )
                    for name, spec in context.inputs.items()
                }
                yield Draft((*([label] if label else []), str(number)), arrays, sizes)
