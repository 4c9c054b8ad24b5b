"""What ``agentruns audit`` shows: findings as they come, how far it is, and a total in the end."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from attrs import asdict
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentruns.cli.output import Output
from agentruns.operations.audit import AuditProgress, AuditSample, Finding

_COLUMNS: Final = ("label", "tenant_id", "run_id", "place", "found", "wanted")
#: Of one table: an audit that finds more writes another one, so that findings are not gathered without end.
_ROWS: Final = 500


class AuditDisplay:
    """Write findings to standard output, and to a terminal how far the audit is.

    Attributes:
        progress: as it was told last.
        is_stopped: the audit was ended before it was over.
    """

    def __init__(self, output: Output, sample: AuditSample | None = None) -> None:
        self.progress = AuditProgress()
        self.is_stopped = False
        self._sample = sample
        self._output = output
        self._held: list[dict[str, Any]] = []
        self._watched = ExitStack()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if self._output.is_watched:
            columns = (
                TextColumn("auditing"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:.0f} runs/s, {task.fields[findings]} findings"),
                TimeRemainingColumn(),
            )
            bar = Progress(*columns, console=self._output.progress, transient=True)
            self._bar = self._watched.enter_context(bar)
            self._task = bar.add_task("audit", total=None, rate=0.0, findings=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watched.close()

    def add(self, finding: Finding) -> None:
        """Take one finding; a program has it at once."""
        members = {**asdict(finding), "place": finding.place}
        if self._output.is_json:
            self._output.document({**members, "sentence": finding.sentence})
            return
        self._held.append(members)
        if len(self._held) == _ROWS:
            self._write()

    def advance(self, progress: AuditProgress) -> None:
        """Show how far the audit is."""
        self.progress = progress
        if self._bar is not None:
            self._bar.update(
                self._task,
                total=max(progress.run_count, progress.runs),
                completed=progress.runs,
                rate=progress.rate,
                findings=progress.findings,
            )

    def stop(self) -> None:
        """Take note that the audit has ended before it was over."""
        self.is_stopped = True

    def show(self) -> None:
        """Write what is left, and the total."""
        if self._held:
            self._write()
        last, progress, sample = self.progress.last, self.progress, self._sample
        self._output.document(
            {
                "complete": not self.is_stopped,
                "sample": None if sample is None else sample.share,
                "seed": None if sample is None else sample.seed,
                "runs": progress.runs,
                "events": progress.events,
                "findings": progress.findings,
                "unproven": progress.unproven,
                "seconds": round(progress.seconds, 3),
                "last_tenant": None if last is None else last[0],
                "last_run": None if last is None else last[1],
            }
        )

    def _write(self) -> None:
        self._output.lines(self._held, columns=_COLUMNS)
        self._held.clear()
