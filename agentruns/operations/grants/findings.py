"""What is found of roles and of the objects that they are granted."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

Problem = Literal[
    "absent",
    "named_twice",
    "ownership",
    "attribute",
    "membership",
    "missing",
    "excess",
    "grant_option",
    "default_privilege",
    "parameter",
    "setting",
    "not_named",
]


@frozen(order=True)
class Finding:
    """Say what is wrong with one role.

    Attributes:
        role: its name; ``PUBLIC`` is everybody.
        problem: what kind of thing is wrong.
        subject: the privilege, attribute, setting or role that it is about.
    """

    role: str
    problem: Problem
    subject: str

    def __str__(self) -> str:
        return f"{self.role}: {self.problem}, {self.subject}"
