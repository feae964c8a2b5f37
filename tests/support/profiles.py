"""How much Hypothesis tries: ``dev`` looks for something new quickly, ``ci`` repeats all of it.

In ``ci`` the examples are the same in every run, so that a pull request fails for what it changed.
``HYPOTHESIS_PROFILE`` chooses; without it the variable ``CI`` does.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
DEV_SHARE = 5


def load() -> None:
    """Use the profile that was asked for in this process."""
    slow = [HealthCheck.too_slow]  # other work on the machine is no fault of a test
    settings.register_profile("dev", deadline=None, max_examples=30, suppress_health_check=slow)
    settings.register_profile(
        "ci",
        deadline=None,
        database=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=slow,
    )
    settings.load_profile(PROFILE)


def tries(ci: int) -> int:
    """Return how many examples a test takes that takes ``ci`` of them in CI."""
    return ci if PROFILE == "ci" else max(ci // DEV_SHARE, 10)
