"""Decode admissions of one agent: nearly all of their bytes are those of an earlier one."""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import Final, Self

from attrs import define, field, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ids import InvocationId, RunId, ThreadId
from agentruns.domain.json_limits import KIB
from agentruns.domain.result import AgentResultProvenance
from agentruns.domain.scalars import TenantId
from agentruns.domain.wire import decode, encode
from agentruns.errors import InvalidValueError

#: Agents, or kinds of submissions of one, that are remembered, and the bytes of one at most.
MAXIMUM_FRONTS: Final = 64
MAXIMUM_FRONT_BYTES: Final = 64 * KIB

#: What stands before this member in the canonical order is the same for many runs; ids and input stand behind it.
_MARK: Final = b',"provenance":'
#: Texts that no escape stands in; the classes of the ids have the rest to say.
_IDS: Final = re.compile(
    rb'"invocation_id":"([!#-\[\]-~]+)","run_id":"([!#-\[\]-~]+)"'
    rb',"tenant_id":"([!#-\[\]-~]+)","thread_id":"([!#-\[\]-~]+)"'
)


@frozen(kw_only=True)
class _Known:
    """A record that was decoded whole, and its bytes behind the front but for the ids of its run and the input.

    Attributes:
        intent: the record.
        before_ids: from the mark on.
        before_input: from the last id on.
        behind_input: to the end.
    """

    intent: AgentAdmissionIntent
    before_ids: bytes
    before_input: bytes
    behind_input: bytes

    @classmethod
    def of(cls, intent: AgentAdmissionIntent) -> Self:
        """Take a record apart."""
        request = intent.request
        return cls(
            intent=intent,
            before_ids=b'{"agent":%b,' % intent.provenance.agent.canonical,
            before_input=b'},"request":{"budget_limits":%b,"input":' % request.budget_limits.canonical,
            behind_input=b',"input_schema":%b}}' % encode(request.input_schema),
        )

    def joined(self, body: bytes, back: bytes) -> AgentAdmissionIntent | None:
        """Read a body with the same front as the record of another run; ``None`` where anything else differs."""
        ids = _IDS.match(back, len(self.before_ids))
        if ids is None or not back.startswith(self.before_ids):
            return None
        begin, end = ids.end() + len(self.before_input), len(back) - len(self.behind_input)
        if not (back.startswith(self.before_input, ids.end()) and back.endswith(self.behind_input)):
            return None
        try:
            provenance = self._provenance(*[each.decode("ascii") for each in ids.groups()])
            return self.intent.of_another_run(provenance, BoundedJson.read(back[begin:end]), canonical=body)
        except InvalidValueError:
            return None

    def _provenance(self, invocation_id: str, run_id: str, tenant_id: str, thread_id: str) -> AgentResultProvenance:
        return AgentResultProvenance(
            tenant_id=TenantId(tenant_id),
            run_id=RunId(run_id),
            thread_id=ThreadId(thread_id),
            invocation_id=InvocationId(invocation_id),
            agent=self.intent.descriptor.metadata.identity,
        )


@define
class AdmissionReader:
    """Decode bodies of admissions, and remember their fronts. Any thread may ask."""

    _fronts: OrderedDict[bytes, _Known] = field(factory=OrderedDict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, body: bytes) -> AgentAdmissionIntent:
        """Decode a body.

        Raises:
            InvalidValueError: as ``decode``.
        """
        front, _, back = body.partition(_MARK)
        with self._lock:
            known = self._fronts.get(front)
        intent = None if known is None else known.joined(body, back)
        if intent is None:
            intent = decode(body, AgentAdmissionIntent)
            self.learn(intent)
        return intent

    def learn(self, intent: AgentAdmissionIntent) -> None:
        """Remember the front of a record; the one that was learnt first goes when there are too many."""
        front, _, back = intent.canonical.partition(_MARK)
        if len(front) > MAXIMUM_FRONT_BYTES or front in self._fronts:
            return
        known = _Known.of(intent)
        # The mark may stand within somebody's evidence as well; then the parts do not make the record again.
        if known.joined(intent.canonical, back) != intent:
            return
        with self._lock:
            self._fronts.setdefault(front, known)
            if len(self._fronts) > MAXIMUM_FRONTS:
                self._fronts.popitem(last=False)
