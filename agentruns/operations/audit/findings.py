"""What an audit found: which law, where, what stands there and what should."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Finding:
    """Say where stored rows break a law. It holds names, counts, instants and digests, and nothing private.

    Attributes:
        label: of the law, such as ``LED-16``.
        law: what should hold, as one sentence.
        tenant_id: whose rows; ``None`` where they belong to nobody.
        run_id: of the run; ``None`` where the rows belong to none.
        table: where it was found.
        column: which column of it; ``None`` when a whole row is meant, or several columns together.
        key: the row among those of the run, such as ``sequence=5``.
        found: what stands there.
        wanted: what would stand there.
    """

    label: str
    law: str
    tenant_id: str | None = None
    run_id: str | None = None
    table: str
    column: str | None = None
    key: str = ""
    found: str
    wanted: str

    @property
    def place(self) -> str:
        """Table, row and column in one."""
        row = f"[{self.key}]" if self.key else ""
        column = f".{self.column}" if self.column else ""
        return f"{self.table}{row}{column}"

    @property
    def sentence(self) -> str:
        """All of it, for a person."""
        tenant = f" in tenant {self.tenant_id}" if self.tenant_id is not None else ""
        run = f", run {self.run_id}" if self.run_id is not None else ""
        return f"{self.label}: {self.law}: found {self.found}, wanted {self.wanted}, at {self.place}{tenant}{run}"

    def __str__(self) -> str:
        return self.sentence
