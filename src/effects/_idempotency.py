"""The seven idempotency classes: where an effect's consequences live and what a repeat would do."""

from enum import StrEnum


class Idempotency(StrEnum):
    """From the laxest to the strictest; recovery may do less with every step down."""

    PURE = "pure"
    """depends on its arguments only; leaves no receipt"""
    READ = "read"
    """observes the outside"""
    CONTAINED = "contained"
    """reads or changes only the run's own world: a fork at an earlier snapshot undoes it"""
    COMPOSITE = "composite"
    """does nothing outside except through the effects it performs"""
    IDEMPOTENT = "idempotent"
    """changes the outside; the same call again has the same effect"""
    KEYED = "keyed"
    """changes the outside; the remote drops repeats of an idempotency key for a declared window"""
    ONCE = "once"
    """changes the outside; a repeat is a second charge, mail, post"""

    @property
    def outside(self) -> bool:
        """Whether it changes something that no fork undoes."""
        return self in _OUTSIDE

    @property
    def doubtful(self) -> bool:
        """Whether a lost answer leaves a doubt: such a call writes its intent first and may be asked about."""
        return self in _DOUBTFUL


_OUTSIDE = frozenset({Idempotency.IDEMPOTENT, Idempotency.KEYED, Idempotency.ONCE})
_DOUBTFUL = frozenset({Idempotency.KEYED, Idempotency.ONCE})
_RANK = {each: rank for rank, each in enumerate(Idempotency)}


def stricter(a: Idempotency, b: Idempotency) -> Idempotency:
    """The one that allows less: what counts when an effect's class changed since its receipt."""
    return a if _RANK[a] >= _RANK[b] else b
