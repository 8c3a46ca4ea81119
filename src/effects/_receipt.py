"""Receipts: what is durably known of one call."""

from enum import StrEnum

from attrs import fields, frozen

from ._idempotency import Idempotency


class Status(StrEnum):
    INTENDED = "intended"
    """the intent is durable; whether the body was entered is not known"""
    PERFORMED = "performed"
    FAILED = "failed"
    """an observed error: it is known to have failed"""
    IN_DOUBT = "in_doubt"
    """it ended ambiguously: nobody knows"""
    WITHDRAWN = "withdrawn"
    """the intent was taken back by its own attempt: the body was never entered"""


UNSETTLED = frozenset({Status.INTENDED, Status.IN_DOUBT})


@frozen(kw_only=True)
class Receipt:
    """One call's receipt. Digests are 32 bytes and name objects of the store."""

    key: bytes
    """the call key: a path within the step (`_key.py`)"""
    step: int
    effect: str
    version: int
    idempotency: Idempotency
    status: Status
    writes_world: bool = False
    arguments: bytes | None = None
    """canonical bytes of the bound arguments, where they are short"""
    arguments_object: bytes | None = None
    """the object that holds them, where they are long"""
    outcome: bytes | None = None
    """the result's object, or the `Failure`'s"""
    tried: int = 0
    """how many intents were written; a decision `redo` belongs to one try and is consumed by the next intent"""
    at: float = 0.0
    """wall clock, seconds since 1970: the first intent of this try (KEYED), else the outcome (READ `max_age_s`)"""
    number: int = 0
    """its place among the lineage's events; 0 while it is not durable"""
    stale: bool = False
    """its changes are not in the fork of the world that the newest claim started from"""
    world: bytes | None = None
    """world changes that a decision `performed` brings back: an object with the snapshots before and after"""
    note: bytes | None = None
    """an object outside every identity: usage, provider ids"""

    def at_number(self, number: int) -> "Receipt":
        """This receipt at its place among the events. Copied by hand: it happens for every call."""
        copy = object.__new__(Receipt)
        for name in _FIELDS:
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "number", number)
        return copy

    @property
    def touches_world(self) -> bool:
        """Whether its effect is part of a world snapshot, so that a fork may lack it."""
        return self.idempotency is Idempotency.CONTAINED or self.world is not None


_FIELDS = tuple(each.name for each in fields(Receipt))
