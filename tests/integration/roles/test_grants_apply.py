"""Grants are applied by whoever may, whole, as often as one likes, and to roles that are fit for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.errors import RefusedError, SchemaVerificationError, UnitOfWorkError
from agentruns.migrations.locking import lock_key
from agentruns.operations.grants import Finding, GrantedRoles, GrantPlan, apply, audit, plan
from agentruns.operations.grants.statements import SETTINGS
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]
Undone = Callable[[Callable[[Connection], Any]], Any]
OWNER = "agentruns_owner"

#: An access list means the same in any order.
_PRIVILEGES = text("""
SELECT kind, name, (SELECT string_agg(entry, ' ' ORDER BY entry) FROM unnest(entries) AS entry) AS entries FROM (
  SELECT 'schema' AS kind, n.nspname::text AS name, n.nspacl::text[] AS entries FROM pg_namespace AS n
    WHERE n.nspname = 'agentruns'
  UNION ALL SELECT 'relation', c.oid::regclass::text, c.relacl::text[] FROM pg_class AS c
    WHERE c.relnamespace = 'agentruns'::regnamespace
  UNION ALL SELECT 'column', a.attrelid::regclass::text || '.' || a.attname, a.attacl::text[]
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relnamespace = 'agentruns'::regnamespace
  UNION ALL SELECT 'function', p.oid::regprocedure::text, p.proacl::text[] FROM pg_proc AS p
    WHERE p.pronamespace = 'agentruns'::regnamespace
  UNION ALL SELECT 'default', d.defaclobjtype::text, d.defaclacl::text[] FROM pg_default_acl AS d
  UNION ALL SELECT 'setting', s.setrole::regrole::text, s.setconfig
    FROM pg_db_role_setting AS s JOIN pg_database AS d ON d.oid = s.setdatabase AND d.datname = current_database()
) AS every ORDER BY 1, 2
""")


def privileges(connection: Connection) -> list[tuple[str, str, str]]:
    return [(row.kind, row.name, row.entries) for row in connection.execute(_PRIVILEGES)]


def execute(connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(text(statement.replace(":", r"\:")))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_a_second_apply_changes_nothing(granted: Any, undone: Undone) -> None:
    def again(connection: Connection) -> tuple[Any, Any]:
        before = privileges(connection)
        apply(connection, granted.roles)
        return before, privileges(connection)

    before, after = undone(again)
    assert before == after
    assert len(before) > 40


def test_apply_takes_whatever_was_granted_besides(granted: Any, undone: Undone) -> None:
    runtime, reader = quoted(granted.names["runtime"]), quoted(granted.names["reader"])
    additions = (
        f"GRANT SELECT ON agentruns.runs TO {runtime} WITH GRANT OPTION",
        f"GRANT CREATE ON SCHEMA agentruns TO {reader}, PUBLIC",
        f"GRANT UPDATE (data) ON agentruns.run_events TO {reader}, PUBLIC",
        "GRANT EXECUTE ON FUNCTION agentruns.forbid_change() TO PUBLIC",
        "GRANT ALL ON agentruns.run_overview TO PUBLIC",
        f"SET LOCAL ROLE {runtime}",
        f"GRANT SELECT ON agentruns.runs TO {reader}",
        "RESET ROLE",
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} IN SCHEMA agentruns GRANT ALL ON TABLES TO {reader}, PUBLIC",
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} IN SCHEMA agentruns GRANT EXECUTE ON ROUTINES TO PUBLIC",
    )

    def work(connection: Connection) -> tuple[Any, ...]:
        before = privileges(connection)
        execute(connection, *additions)
        found = audit(connection, granted.roles)
        apply(connection, granted.roles)
        return before, found, privileges(connection), audit(connection, granted.roles)

    before, found, after, left = undone(work)
    assert len(found) > 20
    assert after == before
    assert {(finding.role, finding.problem) for finding in left} == {(granted.names["evidence reader"], "not_named")}


def test_statements_of_a_plan_do_what_apply_does(granted: Any, undone: Undone) -> None:
    def work(connection: Connection) -> tuple[Any, ...]:
        runtime = granted.names["runtime"]
        execute(connection, f"REVOKE ALL ON ALL TABLES IN SCHEMA agentruns FROM {quoted(runtime)}")
        planned = plan(connection, granted.roles)
        with connection.begin_nested() as transaction:
            done = apply(connection, granted.roles)
            applied = privileges(connection)
            transaction.rollback()
        execute(connection, *planned.statements)
        return planned, done, applied, privileges(connection)

    planned, done, applied, by_hand = undone(work)
    assert (done, by_hand) == (planned, applied)


def test_a_later_table_gets_nothing_although_defaults_said_so(granted: Any, undone: Undone) -> None:
    def work(connection: Connection) -> list[bool]:
        reader = granted.names["reader"]
        default = f"ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} IN SCHEMA agentruns GRANT SELECT ON TABLES TO"
        execute(connection, f"{default} {quoted(reader)}, PUBLIC")
        apply(connection, granted.roles)
        execute(connection, f"SET LOCAL ROLE {OWNER}", "CREATE TABLE agentruns.later (x int)", "RESET ROLE")
        asked = text("SELECT has_table_privilege(CAST(:name AS name), 'agentruns.later', 'SELECT')")
        return [connection.execute(asked, {"name": name}).scalar_one() for name in (reader, "public")]

    assert undone(work) == [False, False]


def test_autocommit_is_refused(granted: Any, run: Run) -> None:
    async def work() -> None:
        engine = create_async_engine(granted.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            await connection.run_sync(apply, granted.roles)

    with pytest.raises(UnitOfWorkError):
        run(work())


UNFIT = {
    "ALTER ROLE {reader} SUPERUSER": "{reader}: attribute, SUPERUSER",
    "ALTER ROLE {reader} CREATEROLE": "{reader}: attribute, CREATEROLE",
    "ALTER ROLE {reader} CREATEDB": "{reader}: attribute, CREATEDB",
    "ALTER ROLE {reader} REPLICATION": "{reader}: attribute, REPLICATION",
    "ALTER ROLE {reader} BYPASSRLS": "{reader}: attribute, BYPASSRLS",
    "GRANT pg_monitor TO {reader}": "{reader}: membership, pg_monitor",
    "GRANT pg_write_all_data TO {reader} WITH INHERIT FALSE": "{reader}: membership, pg_write_all_data",
    "GRANT SET ON PARAMETER session_replication_role TO {reader}": (
        "{reader}: parameter, SET on session_replication_role"
    ),
    "GRANT ALTER SYSTEM ON PARAMETER work_mem TO {reader}": "{reader}: parameter, ALTER SYSTEM on work_mem",
    "ALTER ROLE agentruns_owner SUPERUSER": (
        "agentruns_owner: ownership, is a superuser and owns the schema or objects in it"
    ),
    "SET LOCAL ROLE {reader}": "{reader}: ownership, may not act as the owner agentruns_owner",
}


@pytest.mark.parametrize("statement", UNFIT)
def test_unfit_roles_are_refused_before_anything_is_changed(granted: Any, undone: Undone, statement: str) -> None:
    name = granted.names["reader"]

    def work(connection: Connection) -> tuple[Any, ...]:
        execute(connection, f"GRANT SELECT ON agentruns.runs TO {quoted(granted.names['retention'])}")
        execute(connection, statement.format(reader=quoted(name)))
        before = privileges(connection)
        with pytest.raises(RefusedError) as caught:
            apply(connection, GrantedRoles(reader=name) if "SET LOCAL" not in statement else granted.evidence)
        return before, privileges(connection), caught.value

    before, after, error = undone(work)
    assert before == after
    assert (error.reason, error.found) == ("unfit_for_grants", UNFIT[statement].format(reader=name))
    assert "change what was found, and repeat" in str(error)


def test_the_owner_and_a_second_owner_are_refused(granted: Any, undone: Undone) -> None:
    reader = granted.names["reader"]

    def work(connection: Connection) -> list[str]:
        found = []
        for roles, statement in (
            (GrantedRoles(runtime=OWNER), "SELECT 1"),
            (GrantedRoles(runtime=granted.names["runtime"]), f"ALTER TABLE agentruns.runs OWNER TO {quoted(reader)}"),
        ):
            execute(connection, statement)
            with pytest.raises(RefusedError) as caught:
                apply(connection, roles)
            found.append(caught.value.found)
        return found

    several = "is one of several owners; one role must own everything"
    assert undone(work) == [
        f"{OWNER}: ownership, owns the schema or objects in it",
        f"{OWNER}: ownership, {several}; {reader}: ownership, {several}",
    ]


def test_a_schema_that_does_not_verify_is_refused(empty_database_url: str, granted: Any, within: Within) -> None:
    with pytest.raises(SchemaVerificationError) as caught:
        within(empty_database_url, lambda connection: apply(connection, granted.roles))
    assert caught.value.reason == "not_migrated"


def settings_of(statements: tuple[str, ...]) -> list[str]:
    return [statement for statement in statements if statement.startswith("ALTER ROLE")]


def test_settings_that_the_migrator_may_not_make_are_left_to_the_dba(granted: Any, undone: Undone) -> None:
    reader, retention = granted.names["reader"], granted.names["retention"]
    roles = GrantedRoles(reader=reader, retention=retention)

    def work(connection: Connection) -> tuple[Any, ...]:
        applied = [plan(connection, roles)]
        execute(
            connection,
            *(f"ALTER ROLE {quoted(name)} IN DATABASE {_database(connection)} RESET ALL" for name in roles.names),
            "REVOKE ALL ON ALL TABLES IN SCHEMA agentruns FROM " + quoted(reader),
            f"SET LOCAL ROLE {OWNER}",
        )
        applied.append(apply(connection, roles))
        made = [name for kind, name, _ in privileges(connection) if kind == "setting"]
        execute(connection, "RESET ROLE", f"ALTER ROLE {OWNER} CREATEROLE")
        execute(connection, f"GRANT {quoted(reader)} TO {OWNER} WITH ADMIN OPTION, INHERIT FALSE, SET FALSE")
        execute(connection, f"SET LOCAL ROLE {OWNER}")
        applied.append(apply(connection, roles))
        return applied, made, [each for each in audit(connection, roles) if each.problem != "not_named"]

    (superuser, migrator, admin), made, found = undone(work)
    every, own = settings_of(superuser.statements), [f"ALTER ROLE {quoted(reader)} "]
    assert len(every) == 12
    assert superuser.for_the_dba == ()
    assert (settings_of(migrator.statements), migrator.for_the_dba) == ([], tuple(every))
    assert settings_of(admin.statements) == [line for line in every if line.startswith(own[0])]
    assert admin.for_the_dba == tuple(line for line in every if not line.startswith(own[0]))
    assert {quoted(reader), quoted(retention)} & set(made) == set()
    missing = [f"{name} is not what apply sets" for name in sorted(SETTINGS)]
    assert found == [Finding(retention, "setting", subject) for subject in missing]


def _database(connection: Connection) -> str:
    return str(connection.execute(text("SELECT current_database()")).scalar_one())


def test_a_role_has_its_settings_and_a_store_relies_on_them(granted: Any, run: Run) -> None:
    shown = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "search_path")

    async def work() -> list[str]:
        engine = create_async_engine(granted.url_of("runtime"), poolclass=NullPool)
        async with engine.connect() as connection:
            found = [(await connection.execute(text(f"SHOW {name}"))).scalar_one() for name in shown]
        await engine.dispose()
        async with AgentRunStore(granted.url_of("runtime"), StoreOptions(settings="role")):
            return found

    assert run(work()) == ["5s", "15s", "15s", '""']


def test_apply_waits_for_a_migration_that_is_under_way(granted: Any, run: Run) -> None:
    engine = create_async_engine(granted.url, poolclass=NullPool)

    async def granting() -> GrantPlan:
        async with engine.begin() as connection:
            return await connection.run_sync(apply, granted.roles)

    async def work() -> tuple[bool, GrantPlan]:
        waits = text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        async with engine.connect() as migrating:
            await migrating.execute(text(f"SELECT pg_advisory_xact_lock({lock_key('agentruns')})"))
            task = asyncio.create_task(granting())
            async with asyncio.timeout(30):
                while (await migrating.execute(waits)).scalar_one() == 0:
                    await asyncio.sleep(0.01)
            was_done = task.done()
            await migrating.rollback()
            return was_done, await task

    was_done, planned = run(work())
    run(engine.dispose())
    assert (was_done, planned.for_the_dba) == (False, ())
