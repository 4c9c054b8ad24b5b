"""What the service is told by its surroundings."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from pydantic import TypeAdapter

from .access import Client

IsolationLevel = Literal["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hold the service's settings.

    Attributes:
        database_url: of the database that holds our tables and those of the runs.
        clients: who may call, with their tokens.
        isolation_level: of our own transactions.
        patience: how long one request may take before it is answered 503.
        maximum_body: bytes of a request's body.
    """

    database_url: str = field(repr=False)
    clients: tuple[Client, ...]
    isolation_level: IsolationLevel = "READ COMMITTED"
    patience: timedelta = timedelta(seconds=20)
    maximum_body: int = 128 * 1024

    @property
    def tenants(self) -> tuple[str, ...]:
        """Every tenant that has a client, each once."""
        return tuple(dict.fromkeys(client.caller.tenant for client in self.clients))

    @classmethod
    def from_environment(cls) -> Settings:
        """Read ORDER_REVIEWS_DATABASE_URL and ORDER_REVIEWS_CLIENTS, a JSON array of clients."""
        clients = TypeAdapter(tuple[Client, ...]).validate_json(os.environ["ORDER_REVIEWS_CLIENTS"])
        return cls(database_url=os.environ["ORDER_REVIEWS_DATABASE_URL"], clients=clients)
