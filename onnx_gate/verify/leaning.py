"""What differences add up to over all cases of an output: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onnx_gate.report.model import Check, Deviation
from onnx_gate.verify.judge.systematic import Lean, most


@dataclass
class Leaning:
    """The sums of the differences of each output on each runtime, and the case that leans most."""

    _sums: dict[tuple[str, str], Lean] = field(default_factory=dict)
    _most: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)

    def take(self, runtime: str, output: str, case: str, lean: Lean | None) -> None:
        """Add the sums of one case."""
        if lean is None:
            return
        key = runtime, output
        self._sums[key] = self._sums.get(key, Lean()) + lean
        self._most[key] = max(self._most.get(key, (0.0, case)), (most(lean), case))

    def refused(self, checks: Sequence[Check], against: str) -> tuple[Check, ...]:
        """Return the checks, of each output that is off throughout one that diverges.

        An output of which a check has diverged needs no other reason.
        """
        wrong = {(c.runtime, c.output) for c in checks if c.verdict == "diverged" and not c.advice}
        judged = list(checks)
        for key, lean in self._sums.items():
            found = lean.systematic
            if found is None or key in wrong:
                continue
            case = self._most[key][1]
            for place, check in enumerate(judged):
                if (check.runtime, check.output, check.case) == (*key, case):
                    judged[place] = check.model_copy(
                        update={
                            "verdict": "diverged",
                            "budget": found.share,
                            "deviation": Deviation(
                                measure=found.measure, value=abs(found.value), allowed=found.allowed
                            ),
                            "reason": f"over all cases {found.sentence(against)}, which rounding is not",
                        }
                    )
        return tuple(judged)
