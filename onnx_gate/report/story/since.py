"""What other packages made of the answers, in three lines: pure functions of the report's ``since``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx_gate.report.model.since import Link, LinkAnswer, Package, Since
from onnx_gate.report.story.summary import percent
from onnx_gate.text import counted, listed, plain

_LINKS: dict[Link, str] = {"pytorch": "PyTorch", "export": "the export", "engine": "the engines"}
_ANSWERS: dict[Link, str] = {
    **_LINKS,
    "pytorch": "PyTorch's answers",
    "engine": "the engines' answers",
}
_SHOWN = 5
_NAME = 60


def lines(since: Since | None) -> tuple[str, ...]:
    """Return what changed in which answers, by how much, and in which models; nothing of nothing."""
    if since is None or not since.packages:
        return () if since is None else ("no package has another release",)
    moved = [each for each in since.answers if each.changed]
    models = _models(since, moved)
    if since.out_of_time:
        models += f"; there was no time to ask more than in {counted(since.runs, 'run')}"
    return (_what(since, moved), _by_how_much(since, moved), models)


def _what(since: Since, moved: Sequence[LinkAnswer]) -> str:
    if not moved:
        named = listed((_release(each) for each in since.packages), _SHOWN, "packages")
        return f"{named}: {_same(since, moved) or 'nothing could be asked'}"
    said = []
    for names, sure in dict.fromkeys((each.packages, each.sure) for each in moved):
        mine = [each for each in moved if (each.packages, each.sure) == (names, sure)]
        known = [each for each in since.packages if each.name in names]
        who = listed((_release(each) for each in known), _SHOWN, "packages")
        if len(known) > 1:
            who = f"{who} together" if sure else f"one or more of {who}"
        links = _listed(_ANSWERS[link] for link in dict.fromkeys(each.link for each in mine))
        models = listed(dict.fromkeys(plain(e.model, _NAME) for e in mine), _SHOWN, "models")
        said.append(f"{who} changed {links} of {models}")
    same = _same(since, moved)
    return "; ".join([*said, *([same] if same else [])])


def _same(since: Since, moved: Sequence[LinkAnswer]) -> str:
    other = {each.link for each in moved}
    asked = [link for link in _LINKS if link in {e.link for e in since.answers} - other]
    if not asked:
        return ""
    names = _listed(_LINKS[link] for link in asked)
    plural = len(asked) > 1 or asked == ["engine"]
    return f"{names} {'answer' if plural else 'answers'} as before"


def _by_how_much(since: Since, moved: Sequence[LinkAnswer]) -> str:
    if not moved:
        used = [each.share for each in since.answers if each.share is not None]
        most = f", {percent(max(used))} of a tolerance used at most" if used else ""
        return f"by how much: no verdict is another one{most}"
    return "by how much: " + listed((_moved(each) for each in moved), _SHOWN, "answers")


def _moved(each: LinkAnswer) -> str:
    where = f" ({plain(each.output, _NAME)}, {plain(each.case, _NAME)})" if each.output else ""
    change = f"{each.before} to {each.verdict}"
    if each.verdict == "error":
        return f"{plain(each.model, _NAME)}: {change}: {plain(each.reason, 200)}"
    was = f" where it was {percent(each.share_before)}" if each.share_before is not None else ""
    share = (
        f", {percent(each.share)} of the tolerance{where}{was}" if each.share is not None else ""
    )
    return f"{plain(each.model, _NAME)}: {change}{share}"


def _models(since: Since, moved: Sequence[LinkAnswer]) -> str:
    names = dict.fromkeys(plain(each.model, _NAME) for each in moved)
    all_of_them = len({each.model for each in since.answers})
    if not names:
        return f"models: none of {all_of_them}"
    return f"models: {listed(names, 10, 'models')} ({len(names)} of {all_of_them})"


def _release(package: Package) -> str:
    name = plain(package.name, _NAME)
    if package.old is None:
        return f"{name} {plain(package.new, _NAME)} (new)"
    return f"{name} {plain(package.old, _NAME)} to {plain(package.new or 'none', _NAME)}"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
