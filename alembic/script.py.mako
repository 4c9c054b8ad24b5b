"""${message.capitalize()}."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, execute

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}

THIS = Revision(${int(up_revision.rpartition("_")[2])}, __file__)


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        ${upgrades if upgrades else "execute()"}


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed():
        ${downgrades if downgrades else "execute()"}
