"""The releases of a package between two of them, as the index has them for this Python."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from onnx_gate.errors import UserError
from onnx_gate.since.environments import CannotInstall, Installer
from onnx_gate.text import quote

_MOST = 400
# What uv leaves out, and why: "onnxruntime<=1.11.1 has no wheels with a matching ... (e.g., `cp311`)".
_SKIPPED = re.compile(r"(\S+ ha(?:s|ve) no wheels.*?\))(?:,| and )", re.DOTALL)


@dataclass(frozen=True)
class ReleaseRange:
    """The releases from ``low`` to ``high``, both included, and of ``high`` what is below it.

    Of 1.20 to 1.32, 1.32.1 is one.
    """

    low: Version
    high: Version

    def specifier(self, without: list[Version]) -> str:
        """Return it as a requirement has it, without some releases."""
        *first, last = self.high.release
        above = ".".join(map(str, (*first, last + 1)))
        ends = (f">={self.low}", f"<={self.high}" if self.high.is_prerelease else f"<{above}")
        return ",".join((*ends, *(f"!={each}" for each in without)))


def parse_range(text: str) -> ReleaseRange:
    """Return what ``1.20..1.32`` means; raises ``UserError``."""
    low, dots, high = text.partition("..")
    try:
        if not dots:
            raise InvalidVersion
        found = ReleaseRange(Version(low), Version(high))
    except InvalidVersion:
        raise UserError(
            f"{quote(text)} is no range of releases; write the first and the last one: 1.20..1.32"
        ) from None
    if found.low > found.high:
        raise UserError(f"{quote(text)} ends before it begins; write it as {high}..{low}")
    return found


def releases(package: str, asked: ReleaseRange, installer: Installer) -> tuple[list[Version], str]:
    """Return the releases that there are, the oldest first, and what is said of those left out.

    Raises ``UserError`` where there are fewer than two, or where no index answers.
    """
    found: list[Version] = []
    said = f"there are more than {_MOST}"
    while len(found) < _MOST:
        try:
            newest = installer.newest(package + asked.specifier(found))
        except CannotInstall as error:
            if not error.nothing_fits:
                raise UserError(f"--package {package}: no index answers: {error}") from error
            said = str(error)
            break
        version = Version(newest)
        if version.is_prerelease and not (asked.low.is_prerelease or asked.high.is_prerelease):
            said = "all others are before a release"
            break  # installers fall back on them where nothing else is left
        found.append(version)
    if len(found) < 2:
        have = f"only {found[0]}" if found else "no release"
        raise UserError(
            f"--package {package}: {have} from {asked.low} to {asked.high} for this Python: {said}"
        )
    skipped = _SKIPPED.search(said)
    return sorted(found), " ".join(skipped[1].split()) if skipped else ""
