"""Say which law is broken, and the few steps that break it."""

from __future__ import annotations

from collections.abc import Sequence


class LawBrokenError(AssertionError):
    """A law does not hold for what was checked.

    Attributes:
        subject: the graph, or the submission.
        law: its name.
        expected: what it is when nothing goes wrong.
        found: what it was after the steps.
        steps: the shortest sequence that was found, in words.
    """

    def __init__(self, subject: str, law: str, *, expected: object, found: object, steps: Sequence[str]) -> None:
        self.subject = subject
        self.law = law
        self.expected = expected
        self.found = found
        self.steps = tuple(steps)
        super().__init__(str(self))

    def __str__(self) -> str:
        """Tell the law, both ends and the steps, a line each."""
        lines = [f"{self.subject} breaks a law: {self.law}"]
        lines += [f"  when nothing goes wrong: {self.expected}", f"  after these steps:       {self.found}"]
        lines += [f"    {number}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)
