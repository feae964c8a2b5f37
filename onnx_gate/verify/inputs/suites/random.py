"""``random``: numbers drawn from a distribution, the same ones on every machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from onnx_gate.manifest import RandomSuite
from onnx_gate.verify.inputs.masks import draw_inputs
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label
from onnx_gate.verify.inputs.suites.base import Draft, SuiteContext


class RandomCases:
    """``{random: normal, count: 2, seed: 0}``: ``count`` draws at each combination of sizes.

    One draw where that is enough, but ``count`` of them in all at least.
    """

    def cases(self, suite: RandomSuite, context: SuiteContext) -> Iterator[Draft]:
        """Yield ``sizes/number`` for every combination and draw."""
        plan = [(sizes, self._draws(suite, context, sizes)) for sizes in context.combinations]
        turn = itertools.count()
        for sizes, draws in (*plan, *((sizes, 1) for sizes in context.once)):
            for number in range(draws):
                label = sizes_label(sizes)
                key = (suite.seed, context.name, label, number)
                arrays = draw_inputs(context.inputs, sizes, key, suite.random, next(turn))
                yield Draft((*([label] if label else []), str(number)), arrays, sizes)

    def _draws(self, suite: RandomSuite, context: SuiteContext, sizes: Sizes) -> int:
        if context.focus is None:
            return suite.count
        if sizes != context.focus:
            return 1
        return suite.count if len(context.combinations) == 1 else max(suite.count - 1, 1)
