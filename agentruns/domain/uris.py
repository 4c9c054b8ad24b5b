"""Names that are URIs: identities of schemas, in normal form only, and issuers of subjects, compared exactly."""

from __future__ import annotations

import re

from agentruns.domain.scalars import TextScalar

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_PLAIN = r"A-Za-z0-9._~!$&'()*+,;=\-"
#: Uppercase, and of no character that may stand for itself.
_NORMAL_ESCAPE = r"%(?!2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])[0-9A-F]{2}"
_ANY_ESCAPE = r"%[0-9A-Fa-f]{2}"


class SchemaId(TextScalar):
    """Identify a schema document. An identity, never fetched, and accepted in normal form only (RFC 3986 section 6.2).

    A host whose last label is a number would be read as an IP address and is refused.
    """

    __slots__ = ()
    grammar = re.compile(
        rf"https://(?=[^/:]{{1,253}}[/:])(?:{_LABEL}\.)*(?![0-9]+[/:]){_LABEL}"
        rf"(?::(?!443/){_PORT})?(?:/(?!\.{{1,2}}(?:/|\Z))(?:[{_PLAIN}:@]|{_NORMAL_ESCAPE})*)+",
    )
    shortest = 9
    longest = 512


class IssuerId(TextScalar):
    """Name who issued a subject. Letter case, a trailing slash and ``:443`` all make another issuer."""

    __slots__ = ()
    grammar = re.compile(
        rf"https://(?:(?:[{_PLAIN}]|{_ANY_ESCAPE})+|\[[0-9A-Fa-f:.]+\])(?::0{{0,4}}(?:0|{_PORT}))?"
        rf"(?:/(?:[{_PLAIN}:@]|{_ANY_ESCAPE})*)*",
    )
    shortest = 9
    longest = 512
