"""Create fair scheduling and the limits of tenants."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0014"
down_revision = "agentruns_0013"
branch_labels = None
depends_on = None

THIS = Revision(14, __file__)

SCHEDULER_FAIRNESS_SHARDS = """
CREATE TABLE {schema}.scheduler_fairness_shards (
    shard_id text COLLATE "C" NOT NULL,
    policy bytea NOT NULL,
    policy_digest bytea NOT NULL,
    cycle_length integer NOT NULL,
    next_slot integer NOT NULL,
    next_sequence bigint NOT NULL,
    CONSTRAINT pk_scheduler_fairness_shards PRIMARY KEY (shard_id),
    CONSTRAINT ck_scheduler_fairness_shards_shard_id CHECK (
        octet_length(shard_id) BETWEEN 1 AND 128 AND shard_id !~ '[^A-Za-z0-9._:-]'
        AND shard_id NOT IN ('.', '..')
    ),
    CONSTRAINT ck_scheduler_fairness_shards_policy CHECK (octet_length(policy) BETWEEN 1 AND 262144),
    CONSTRAINT ck_scheduler_fairness_shards_policy_digest CHECK (octet_length(policy_digest) = 32),
    CONSTRAINT ck_scheduler_fairness_shards_cycle_length CHECK (cycle_length BETWEEN 1 AND 4096),
    CONSTRAINT ck_scheduler_fairness_shards_next_slot CHECK (next_slot BETWEEN 0 AND cycle_length - 1),
    CONSTRAINT ck_scheduler_fairness_shards_next_sequence CHECK (next_sequence >= 0)
) WITH (fillfactor = 50)
"""

SCHEDULER_FAIRNESS_SHARDS_COLUMNS = {
    "shard_id": "Key: the shard.",
    "policy": "Body: canonical JSON bytes of the policy.",
    "policy_digest": "Projection: the digest of the policy.",
    "cycle_length": "Projection: the number of slots of the policy's cycle.",
    "next_slot": "Slot of the cycle that is reserved next.",
    "next_sequence": "Sequence of the reservation that is made next.",
}

SCHEDULER_FAIRNESS_SHARDS_FROZEN = (
    "shard_id",
    "policy",
    "policy_digest",
    "cycle_length",
)

SCHEDULER_FAIRNESS_RESERVATIONS = """
CREATE TABLE {schema}.scheduler_fairness_reservations (
    shard_id text COLLATE "C" NOT NULL,
    reservation_id uuid NOT NULL,
    sequence bigint NOT NULL,
    slot integer NOT NULL,
    reserved_at timestamptz NOT NULL,
    CONSTRAINT pk_scheduler_fairness_reservations PRIMARY KEY (shard_id, reservation_id),
    CONSTRAINT ck_scheduler_fairness_reservations_sequence CHECK (sequence >= 0),
    CONSTRAINT ck_scheduler_fairness_reservations_slot CHECK (slot BETWEEN 0 AND 4095),
    CONSTRAINT uq_scheduler_fairness_reservations_sequence UNIQUE (shard_id, sequence)
)
"""

IX_SCHEDULER_FAIRNESS_RESERVATIONS_RETENTION = """
CREATE INDEX ix_scheduler_fairness_reservations_retention
    ON {schema}.scheduler_fairness_reservations (reserved_at, shard_id, sequence)
"""

SCHEDULER_FAIRNESS_RESERVATIONS_COLUMNS = {
    "shard_id": "Key: the shard.",
    "reservation_id": "Key: the reservation.",
    "sequence": "Place of the reservation in its shard, counted from 0.",
    "slot": "Slot of the cycle that was taken.",
    "reserved_at": "Instant of the reservation by the database's clock.",
}

TENANT_LIMITS = """
CREATE TABLE {schema}.tenant_limits (
    tenant_id text COLLATE "C" NOT NULL,
    maximum_live smallint,
    updated_at timestamptz NOT NULL,
    CONSTRAINT pk_tenant_limits PRIMARY KEY (tenant_id),
    CONSTRAINT ck_tenant_limits_tenant_id CHECK (
        octet_length(tenant_id) BETWEEN 1 AND 128 AND tenant_id !~ '[^A-Za-z0-9._:-]'
        AND tenant_id NOT IN ('.', '..')
    ),
    CONSTRAINT ck_tenant_limits_maximum_live CHECK (maximum_live BETWEEN 1 AND 1024)
)
"""

TENANT_LIMITS_COLUMNS = {
    "tenant_id": "Key: the tenant.",
    "maximum_live": "Leases that may live at once, absent for no limit.",
    "updated_at": "Instant of the last change by the database's clock.",
}

TENANT_LIMITS_FROZEN = ("tenant_id",)

TENANT_SLOTS = """
CREATE TABLE {schema}.tenant_slots (
    tenant_id text COLLATE "C" NOT NULL,
    slot smallint NOT NULL,
    run_id uuid,
    fencing_epoch bigint,
    serial bigint NOT NULL,
    CONSTRAINT pk_tenant_slots PRIMARY KEY (tenant_id, slot),
    CONSTRAINT ck_tenant_slots_slot CHECK (slot BETWEEN 0 AND 1023),
    CONSTRAINT ck_tenant_slots_claim_together CHECK (num_nonnulls(run_id, fencing_epoch) IN (0, 2)),
    CONSTRAINT ck_tenant_slots_fencing_epoch CHECK (fencing_epoch > 0),
    CONSTRAINT ck_tenant_slots_serial CHECK (serial >= 0)
) WITH (fillfactor = 50)
"""

TENANT_SLOTS_COLUMNS = {
    "tenant_id": "Key: the tenant.",
    "slot": "Key: the number of the place.",
    "run_id": "Run that took the place last.",
    "fencing_epoch": "Fence of the claim that took the place.",
    "serial": "Number of times that the place was taken.",
}

TENANT_SLOTS_FROZEN = (
    "tenant_id",
    "slot",
)


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(SCHEDULER_FAIRNESS_SHARDS)
        comment(
            "scheduler_fairness_shards",
            "Cycles of fair scheduling, each with its place.",
            SCHEDULER_FAIRNESS_SHARDS_COLUMNS,
        )
        append_only("scheduler_fairness_shards", *SCHEDULER_FAIRNESS_SHARDS_FROZEN)
        execute(SCHEDULER_FAIRNESS_RESERVATIONS, IX_SCHEDULER_FAIRNESS_RESERVATIONS_RETENTION)
        comment(
            "scheduler_fairness_reservations",
            "Slots of fair scheduling that were taken.",
            SCHEDULER_FAIRNESS_RESERVATIONS_COLUMNS,
        )
        append_only("scheduler_fairness_reservations")
        execute(TENANT_LIMITS)
        comment("tenant_limits", "Limits of tenants.", TENANT_LIMITS_COLUMNS)
        append_only("tenant_limits", *TENANT_LIMITS_FROZEN)
        execute(TENANT_SLOTS)
        comment("tenant_slots", "Places for live leases of tenants with a limit.", TENANT_SLOTS_COLUMNS)
        append_only("tenant_slots", *TENANT_SLOTS_FROZEN)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("scheduler_fairness_shards", "scheduler_fairness_reservations", "tenant_limits", "tenant_slots"):
        execute(
            "DROP TABLE {schema}.tenant_slots, {schema}.tenant_limits",
            "DROP TABLE {schema}.scheduler_fairness_reservations, {schema}.scheduler_fairness_shards",
        )
