"""Spell the checks of tables: few forms, always inline, named after the column that they guard."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint

KIB: Final = 1024
MIB: Final = 1024 * KIB


def rule(name: str, sql: str) -> CheckConstraint:
    """Check what no other form says."""
    return CheckConstraint(sql, name=name)


def digest(column: str) -> CheckConstraint:
    """Check that a digest has the length of SHA-256."""
    return rule(column, f"octet_length({column}) = 32")


def size(column: str, low: int, high: int) -> CheckConstraint:
    """Check a length in bytes."""
    return rule(column, f"octet_length({column}) BETWEEN {low} AND {high}")


def body(column: str, limit: int) -> CheckConstraint:
    """Check that a body is there and not longer than its record allows."""
    return size(column, 1, limit)


def between(column: str, low: int, high: int) -> CheckConstraint:
    """Check the range of an ordinal."""
    return rule(column, f"{column} BETWEEN {low} AND {high}")


def at_least(column: str, low: int) -> CheckConstraint:
    """Check the lower bound of a counter."""
    return rule(column, f"{column} >= {low}")


def positive(column: str) -> CheckConstraint:
    """Check a sequence or an epoch that counts from 1."""
    return rule(column, f"{column} > 0")


def words(column: str, *allowed: str) -> CheckConstraint:
    """Check an enumeration."""
    return rule(column, f"{column} IN ({quoted(*allowed)})")


def quoted(*words: str) -> str:
    """Write words as a list of literals."""
    return ", ".join(f"'{word}'" for word in words)


def together(name: str, *columns: str) -> CheckConstraint:
    """Check that columns are set together or not at all."""
    return rule(name, f"num_nonnulls({', '.join(columns)}) IN (0, {len(columns)})")


def uuid7(column: str) -> CheckConstraint:
    """Check version and variant of an id that is ordered by time."""
    return rule(column, f"get_byte(uuid_send({column}), 6) >> 4 = 7 AND get_byte(uuid_send({column}), 8) >> 6 = 2")


def tenant(column: str = "tenant_id") -> CheckConstraint:
    """Check the grammar of a tenant's id."""
    return rule(
        column,
        f"octet_length({column}) BETWEEN 1 AND 128 AND {column} !~ '[^A-Za-z0-9._:-]' AND {column} NOT IN ('.', '..')",
    )


def instant(column: str) -> CheckConstraint:
    """Check an instant that does not come from the database's clock; the infinities are outside."""
    return rule(column, f"{column} BETWEEN '1970-01-01Z' AND '9999-12-31Z'")
