"""A performed effect as data, and what its running body may know of it."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ._errors import BadCall, NoCall

if TYPE_CHECKING:
    from ._effect import Effect


@frozen(kw_only=True)
class Call:
    """One performance of an effect. Its arguments are bound only when somebody reads them."""

    effect: "Effect[..., Any]"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(factory=dict[str, Any])
    recorded: Mapping[str, object] | None = field(default=None, repr=False)
    """The arguments as a receipt has them; set by `Effect.recall` only. Such a call enters no body."""

    @property
    def name(self) -> str:
        return self.effect.name

    @property
    def version(self) -> int:
        return self.effect.version

    @cached_property
    def arguments(self) -> Mapping[str, object]:
        """Parameter name -> value with defaults, or what the effect's `identity` makes of them: the call's identity.

        Raises `BadCall` where the arguments do not fit the signature.
        """
        if self.recorded is not None:
            return self.recorded
        return self.effect.identify(*self.args, **self.kwargs)

    def replace(self, **changes: object) -> "Call":
        """The same call with other values for these parameters. Raises `BadCall` for a name that it does not have."""
        bound = self.effect.bound(*self.args, **self.kwargs)
        unknown = changes.keys() - bound.signature.parameters.keys()
        if unknown:
            raise BadCall(self.name, f"has no parameter {min(unknown)!r}")
        bound.arguments.update(changes)
        return Call(effect=self.effect, args=bound.args, kwargs=bound.kwargs)


@frozen(kw_only=True)
class CurrentCall:
    """The call whose body is running."""

    call: Call
    keyed: Callable[[], str] = field(repr=False)
    """Computes the key: most bodies never ask for it."""
    attempt: int
    """The attempt's epoch, from 1."""
    tried: int
    """How many bodies were entered for this call before."""

    @cached_property
    def idempotency_key(self) -> str:
        """The same in every attempt of the run, another one in a fork."""
        return self.keyed()


CURRENT: ContextVar[CurrentCall | None] = ContextVar("effects_current_call", default=None)
"""Set by the layer around each body."""


def current_call() -> CurrentCall:
    """The call whose body is running. Raises `NoCall` outside a body that a layer runs."""
    current = CURRENT.get()
    if current is None:
        raise NoCall
    return current
