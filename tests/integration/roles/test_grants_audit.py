"""OPS-5: an audit sees each privilege that was added or taken, however it came to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agentruns.errors import RefusedError
from agentruns.operations.grants import GrantedRoles, audit
from agentruns.orm import Base
from agentruns.store.privileges import Privilege, Role, excess, expected, missing
from agentruns.store.privileges_held import held
from agentruns.store.released import released_catalogue

Undone = Callable[[Callable[[Connection], Any]], Any]

RELATIONS = sorted(released_catalogue("agentruns")["relation"])
ON_RELATIONS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN")


def execute(connection: Connection, statement: str) -> None:
    connection.execute(text(statement.replace(":", r"\:")))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def changed(verb: str, privilege: Privilege, name: str) -> str:
    """Grant or revoke one privilege."""
    target = "SCHEMA agentruns" if privilege.kind == "schema" else f"agentruns.{privilege.name}"
    column = f" ({privilege.column})" if privilege.column else ""
    return f"{verb} {privilege.action}{column} ON {target} {'TO' if verb == 'GRANT' else 'FROM'} {quoted(name)}"


def revoke_all(connection: Connection, *names: str) -> None:
    """Take a role out of the schema, so that it is nobody's whom an audit would have to name."""
    for name in names:
        execute(connection, f"REVOKE ALL ON ALL TABLES IN SCHEMA agentruns FROM {quoted(name)}")
        execute(connection, f"REVOKE ALL ON SCHEMA agentruns FROM {quoted(name)}")


def test_nothing_is_found_after_apply(granted: Any, undone: Undone) -> None:
    def found(connection: Connection, roles: GrantedRoles) -> Any:
        revoke_all(connection, *set(granted.names.values()) - set(roles.names))
        return audit(connection, roles)

    assert undone(lambda connection: found(connection, granted.roles)) == ()
    assert undone(lambda connection: found(connection, granted.evidence)) == ()


def differences(
    connection: Connection, role: Role, name: str, verb: str, privileges: Iterable[Privilege]
) -> dict[Any, tuple[Any, Any]]:
    """Grant or revoke the privileges of one action together: what then is missing, and what is in excess."""
    found = {}
    for action, group in groupby(sorted(privileges, key=action_of), key=action_of):
        with connection.begin_nested() as transaction:
            for privilege in group:
                execute(connection, changed(verb, privilege, name))
            having = held(connection, schema="agentruns", role=name)
            found[action] = (missing(expected(role), having), excess(expected(role), having))
            transaction.rollback()
    return found


def action_of(privilege: Privilege) -> tuple[str, str, bool]:
    return privilege.action, privilege.kind, bool(privilege.column)


def by_action(privileges: Iterable[Privilege]) -> dict[Any, set[Privilege]]:
    return {action: set(group) for action, group in groupby(sorted(privileges, key=action_of), key=action_of)}


@pytest.mark.parametrize("role", Role)
def test_OPS_05_each_privilege_that_is_taken_is_missing(granted: Any, undone: Undone, role: Role) -> None:
    name, privileges = granted.names[role.value], expected(role)
    found = undone(lambda connection: differences(connection, role, name, "REVOKE", privileges))
    assert found == {action: (group, frozenset()) for action, group in by_action(privileges).items()}


def outside(role: Role, major: int) -> frozenset[Privilege]:
    """Everything that a role does not hold: on relations, and on the columns that a change could be granted of."""
    columns = [
        Privilege("relation", table.name, column.name, "UPDATE")
        for table in Base.metadata.tables.values()
        for column in table.columns
    ]
    actions = ON_RELATIONS if major >= 17 else ON_RELATIONS[:-1]
    wide = [Privilege("relation", name, "", action) for name in RELATIONS for action in actions]
    return missing({*columns, *wide, Privilege("schema", "", "", "CREATE")}, expected(role))


@pytest.mark.parametrize("role", Role)
def test_OPS_05_each_privilege_that_is_added_is_in_excess(
    granted: Any, undone: Undone, server: Any, role: Role
) -> None:
    name, privileges = granted.names[role.value], outside(role, server.major)
    found = undone(lambda connection: differences(connection, role, name, "GRANT", privileges))
    assert len(privileges) > 300
    assert found == {action: (frozenset(), group) for action, group in by_action(privileges).items()}


#: What is done, and what is found of it; the names of jobs stand for roles.
CHANGES = {
    "GRANT SELECT ON agentruns.runs TO PUBLIC": [
        ("PUBLIC", "excess", "SELECT on runs"),
        ("reader", "excess", "SELECT on runs"),
    ],
    "GRANT EXECUTE ON FUNCTION agentruns.forbid_change() TO {operator}": [
        ("operator", "excess", "EXECUTE on forbid_change"),
    ],
    "GRANT UPDATE (data) ON agentruns.run_events TO {runtime}": [("runtime", "excess", "UPDATE (data) on run_events")],
    "GRANT SELECT (ctid) ON agentruns.runs TO {reader}": [("reader", "excess", "SELECT (ctid) on runs")],
    "GRANT SELECT ON agentruns.runs TO {retention} WITH GRANT OPTION": [
        ("retention", "grant_option", "SELECT on runs with grant option"),
    ],
    "GRANT UPDATE (status) ON agentruns.runs TO {runtime} WITH GRANT OPTION": [
        ("runtime", "grant_option", "UPDATE (status) on runs with grant option"),
    ],
    "GRANT CREATE ON SCHEMA agentruns TO {operator}": [("operator", "excess", "CREATE on the schema")],
    "REVOKE USAGE ON SCHEMA agentruns FROM {reader}": [("reader", "missing", "USAGE on the schema")],
    "REVOKE UPDATE (status) ON agentruns.runs FROM {runtime}": [("runtime", "missing", "UPDATE (status) on runs")],
    "CREATE TABLE agentruns.later (x int); GRANT INSERT ON agentruns.later TO {runtime};"
    " ALTER TABLE agentruns.later OWNER TO agentruns_owner": [("runtime", "excess", "INSERT on later")],
    "GRANT agentruns_owner TO {reader} WITH INHERIT FALSE": [("reader", "membership", "agentruns_owner")],
    "ALTER ROLE {reader} CREATEDB BYPASSRLS": [
        ("reader", "attribute", "BYPASSRLS"),
        ("reader", "attribute", "CREATEDB"),
    ],
    "ALTER ROLE {runtime} SUPERUSER": [("runtime", "attribute", "SUPERUSER")],
    "ALTER DEFAULT PRIVILEGES FOR ROLE agentruns_owner IN SCHEMA agentruns GRANT SELECT ON TABLES TO {reader}": [
        ("reader", "default_privilege", "SELECT on later tables of agentruns_owner in the schema"),
    ],
    "ALTER DEFAULT PRIVILEGES FOR ROLE agentruns_owner GRANT DELETE ON TABLES TO {runtime}": [
        ("runtime", "default_privilege", "DELETE on later tables of agentruns_owner in every schema"),
    ],
    "ALTER DEFAULT PRIVILEGES FOR ROLE agentruns_owner IN SCHEMA agentruns GRANT EXECUTE ON ROUTINES TO PUBLIC": [
        ("PUBLIC", "default_privilege", "EXECUTE on later routines of agentruns_owner in the schema"),
    ],
    "ALTER DEFAULT PRIVILEGES FOR ROLE agentruns_owner GRANT SELECT ON TABLES TO {evidence_reader}": [
        ("evidence reader", "default_privilege", "SELECT on later tables of agentruns_owner in every schema"),
    ],
    "GRANT SELECT ON agentruns.runs TO {evidence_reader}; GRANT USAGE ON SCHEMA agentruns TO {evidence_reader};"
    " GRANT DELETE ON ALL TABLES IN SCHEMA agentruns TO {evidence_reader};"
    " GRANT UPDATE (data, kind), SELECT (data) ON agentruns.run_events TO {evidence_reader} WITH GRANT OPTION;"
    " GRANT EXECUTE ON FUNCTION agentruns.forbid_change() TO {evidence_reader}": [
        ("evidence reader", "not_named", "DELETE on agent_admissions, agent_admissions_json and 48 more"),
        ("evidence reader", "not_named", "EXECUTE on forbid_change"),
        ("evidence reader", "not_named", "SELECT on run_events, runs"),
        ("evidence reader", "not_named", "UPDATE on run_events"),
        ("evidence reader", "not_named", "USAGE on the schema"),
    ],
    "GRANT SET ON PARAMETER session_replication_role TO {runtime}; GRANT ALTER SYSTEM ON PARAMETER work_mem TO {reader}"
    "; GRANT SET ON PARAMETER session_replication_role TO PUBLIC": [
        ("PUBLIC", "parameter", "SET on session_replication_role"),
        ("reader", "parameter", "ALTER SYSTEM on work_mem"),
        ("runtime", "parameter", "SET on session_replication_role"),
    ],
    "ALTER ROLE {runtime} IN DATABASE {database} SET search_path = public": [
        ("runtime", "setting", "search_path is not what apply sets"),
    ],
    "ALTER ROLE {reader} IN DATABASE {database} RESET lock_timeout": [
        ("reader", "setting", "lock_timeout is not what apply sets"),
    ],
    "ALTER ROLE {operator} IN DATABASE {database} SET work_mem = '64MB'": [
        ("operator", "setting", "work_mem is not what apply sets"),
    ],
    "ALTER ROLE {operator} SET session_replication_role = replica; ALTER ROLE {operator} SET work_mem = '64MB'": [
        ("operator", "setting", "session_replication_role is not what apply sets"),
    ],
    "ALTER DATABASE {database} OWNER TO {operator}": [("operator", "ownership", "owns the database")],
    "ALTER VIEW agentruns.run_overview OWNER TO {reader}": [
        ("agentruns_owner", "ownership", "is one of several owners; one role must own everything"),
        ("reader", "ownership", "is one of several owners; one role must own everything"),
        ("reader", "ownership", "owns the schema or objects in it"),
    ],
}


def named(connection: Connection, granted: Any, placeholder: str) -> str:
    if placeholder == "database":
        return quoted(connection.execute(text("SELECT current_database()")).scalar_one())
    return quoted(granted.names[placeholder.replace("_", " ")])


def seen(connection: Connection, granted: Any, statement: str) -> list[tuple[str, str, str]]:
    """Run a statement, and audit; the names of jobs stand for roles in both."""
    revoke_all(connection, granted.names["evidence reader"])
    filled = re.sub(r"{(\w+)}", lambda match: named(connection, granted, match[1]), statement)
    for part in filled.split("; "):
        execute(connection, part)
    jobs = {name: job for job, name in granted.names.items()}
    found = audit(connection, granted.roles)
    return sorted((jobs.get(finding.role, finding.role), finding.problem, finding.subject) for finding in found)


@pytest.mark.parametrize("statement", CHANGES)
def test_OPS_05_each_way_to_gain_or_lose_is_seen(granted: Any, undone: Undone, statement: str) -> None:
    assert undone(lambda connection: seen(connection, granted, statement)) == CHANGES[statement]


def test_OPS_05_maintain_is_seen_where_it_exists(granted: Any, undone: Undone, server: Any) -> None:
    if server.major == 16:
        statement, found = "SELECT 1", []
    else:
        statement, found = "GRANT MAINTAIN ON agentruns.runs TO {runtime}", [("runtime", "excess", "MAINTAIN on runs")]
    assert undone(lambda connection: seen(connection, granted, statement)) == found


PREDEFINED = ("pg_write_all_data", "pg_maintain", "pg_execute_server_program", "pg_signal_backend", "pg_checkpoint")


@pytest.mark.parametrize("group", PREDEFINED)
def test_OPS_05_each_predefined_role_is_a_membership(granted: Any, undone: Undone, server: Any, group: str) -> None:
    if group == "pg_maintain" and server.major == 16:
        group = "pg_monitor"
    found = undone(lambda connection: seen(connection, granted, f"GRANT {group} TO {{reader}} WITH INHERIT FALSE"))
    assert found == [("reader", "membership", group)]


def test_OPS_05_what_a_membership_brings_is_seen(granted: Any, undone: Undone) -> None:
    found = undone(lambda connection: seen(connection, granted, "GRANT pg_read_all_data TO {reader}"))
    assert ("reader", "membership", "pg_read_all_data") in found
    assert ("reader", "excess", "SELECT on run_events") in found
    assert {role for role, _, _ in found} == {"reader"}


def test_roles_that_cannot_be_audited(granted: Any, undone: Undone) -> None:
    def refusal(connection: Connection, roles: GrantedRoles) -> tuple[str, str]:
        with pytest.raises(RefusedError) as caught:
            audit(connection, roles)
        return caught.value.reason, caught.value.found

    reader = granted.names["reader"]
    roles = [
        GrantedRoles(runtime="nobody"),
        GrantedRoles(runtime="public"),
        GrantedRoles(runtime=reader, reader=reader),
    ]
    assert undone(lambda connection: [refusal(connection, each) for each in roles]) == [
        ("unfit_for_grants", "nobody: absent, there is no such role"),
        ("unfit_for_grants", "public: absent, there is no such role"),
        ("unfit_for_grants", f"{reader}: named_twice, each job needs a role of its own"),
    ]
