"""What a person sees while models are verified: a live table, or plain lines in CI.

Names, stages and log lines come from models. None of them can start a workflow command, move the
cursor, or be read as Rich markup.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from onnx_gate.report.model import Verdict
from onnx_gate.report.render.columns import words
from onnx_gate.text import MAX_LINE, fenced, plain, unobeyed, workflow_command

_STYLES: dict[Verdict, str] = {"pass": "green", "diverged": "red", "error": "bold red"}
_WIDTH = max(map(len, _STYLES))
_SHOWN_STAGES = 5


class ProgressDisplay:
    """A display of a run, of which this one shows nothing; every text given to it may be hostile."""

    def started(self, name: str) -> None:
        """The model's worker runs (again, where it was started twice)."""

    def stage(self, name: str, stage: str, step: str = "") -> None:
        """The model has come to the next station, or to another ``step`` of it."""

    def finished(self, name: str, verdict: Verdict, line: str, tail: Sequence[str] = ()) -> None:
        """The model has its verdict; ``line`` says it in short, ``tail`` is from its log."""

    def aside(self, line: str) -> None:
        """Say what is done after the models have their verdicts."""

    def close(self) -> None:
        """Take down whatever is still on the screen."""


def make_progress(
    console: Console, total: int, *, ci: bool, github_actions: bool = False, quiet: bool = False
) -> ProgressDisplay:
    """The display that suits ``console``: live on a terminal, plain in CI or a pipe.

    ``total`` is the number of models; ``github_actions`` says whether the log is read by a
    GitHub runner, which folds groups and obeys workflow commands. A ``quiet`` one shows nothing.
    """
    if quiet:
        return ProgressDisplay()
    if console.is_terminal and not ci and not github_actions:
        return LiveProgress(console, total)
    return PlainProgress(console, total, github_actions=github_actions)


class PlainProgress(ProgressDisplay):
    """One line per finished model, and the end of its log where there is one to show.

    Of what comes before nothing: the lines of models that run side by side would only interleave.
    """

    def __init__(self, console: Console, total: int, *, github_actions: bool = False) -> None:
        self._console = console
        self._total = total
        self._github = github_actions
        self._done = 0

    def finished(self, name: str, verdict: Verdict, line: str, tail: Sequence[str] = ()) -> None:
        """Print the verdict and, fenced, the log."""
        self._done += 1
        self._print(_summary(self._done, self._total, name, verdict, line, _unobeyed))
        if not tail:
            return
        lines = [f"  | {_unobeyed(text)}" for text in tail]
        if self._github:
            lines = [workflow_command("group", name), *fenced(lines), "::endgroup::"]
        for text in lines:
            self._print(Text(text))

    def aside(self, line: str) -> None:
        """Print the line."""
        self._print(Text(_unobeyed(line)))

    def _print(self, text: Text) -> None:
        # A line that Rich wraps could go on with "::".
        self._console.print(text, soft_wrap=True)


class LiveProgress(ProgressDisplay):
    """A line per running model with its stage and time; what is finished scrolls away above."""

    def __init__(
        self, console: Console, total: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._total = total
        self._clock = clock
        self._begin = clock()
        self._done = 0
        self._running: dict[str, _Running] = {}
        self._live = Live(
            console=console, transient=True, refresh_per_second=8, get_renderable=self._render
        )
        self._live.start()

    def started(self, name: str) -> None:
        """Add a line for the model."""
        self._running[name] = _Running(self._clock())

    def stage(self, name: str, stage: str, step: str = "") -> None:
        """Show the stage in the model's line, after those that have ended."""
        if name in self._running:
            self._running[name].enter(plain(stage, 40), plain(step, 40), self._clock())

    def finished(self, name: str, verdict: Verdict, line: str, tail: Sequence[str] = ()) -> None:
        """Take the model's line away and print its verdict and log above."""
        self._running.pop(name, None)
        self._done += 1
        # Within a group it wraps between words: what stands alone is folded by the console.
        self._console.print(Group(_summary(self._done, self._total, name, verdict, line, _clean)))
        for text in tail:
            self._console.print(Text(f"  | {_clean(text)}", style="dim"))

    def aside(self, line: str) -> None:
        """Print the line above."""
        self._console.print(Text(_clean(line)))

    def close(self) -> None:
        """Take the live lines down; harmless when done twice."""
        self._live.stop()

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        now = self._clock()
        # The display is drawn by a thread of Rich's own while models come and go.
        for name, running in tuple(self._running.items()):
            table.add_row(
                running.spinner,
                Text(plain(name, 60), overflow="ellipsis", no_wrap=True),
                Text(running.shown(now), style="dim", overflow="ellipsis", no_wrap=True),
                Text(_elapsed(now - running.since), style="dim", justify="right"),
            )
        done = f"{self._done}/{self._total} models, {_elapsed(now - self._begin)}"
        return Group(table, Text(done, style="dim"))


class _Running:
    """A model that is being verified: the stages that have ended, and the one that has not."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.spinner = Spinner("dots")
        self._ended: tuple[str, ...] = ()
        self._stage: tuple[str, float] | None = None
        self._step = ""

    def enter(self, stage: str, step: str, now: float) -> None:
        """Come to the next stage, or to another step of the same."""
        self._step = step
        if self._stage is not None:
            name, begin = self._stage
            if stage == name:
                return
            self._ended = (*self._ended, f"{name} {now - begin:.1f}")[-_SHOWN_STAGES:]
        self._stage = stage, now

    def shown(self, now: float) -> str:
        """Return ``export 0:12``, after the stages before: ``build 0.3, export 0:12``."""
        if self._stage is None:
            return ""
        name, begin = self._stage
        name += f": {self._step}" if self._step else ""
        return ", ".join((*self._ended, f"{name} {_elapsed(now - begin)}"))


def _summary(
    done: int, total: int, name: str, verdict: Verdict, line: str, clean: Callable[[str], str]
) -> Text:
    text = words(f"[{done:>{len(str(total))}}/{total}] ")
    text.append(f"{verdict:<{_WIDTH}}", style=_STYLES[verdict])
    text.append(f"  {clean(name)}")
    if line:
        text.append(f"  {clean(line)}")
    return text


def _clean(text: str) -> str:
    return plain(text, MAX_LINE, indent=True)


def _unobeyed(text: str) -> str:
    return unobeyed(_clean(text))


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
