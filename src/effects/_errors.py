"""What performing an effect can raise besides the body's own errors. Each names the thing, the cause, the next move."""

from collections.abc import Callable


class Stated(Exception):
    """What every error of the three packages has: a message, `code` (stable text for scripts), `next` (what to do)."""

    code = "error"

    def __init__(self, message: str, *, next: str = "") -> None:
        super().__init__(message)
        self.next = next

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Callable[..., "Stated"], tuple[object, ...]]:
        # Subclasses take other arguments than they pass on: a copy is restored, not constructed.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[Stated], args: tuple[object, ...], fields: dict[str, object]) -> Stated:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class EffectError(Stated):
    """Root of this package's errors."""

    code = "effect"


class BadDeclaration(EffectError, TypeError):
    """An effect, a handler or a policy was written down wrongly; raised before anything is performed."""

    code = "declaration"


class BadCall(EffectError, TypeError):
    """The arguments do not fit the effect's signature; nothing was performed."""

    code = "bad_call"

    def __init__(self, effect: str, reason: str) -> None:
        super().__init__(f"{effect}: {reason}", next="call it as its signature says")
        self.effect = effect


class Refused(EffectError):
    """A policy refused the call; its body was not entered."""

    code = "refused"

    def __init__(self, effect: str, reason: str, *, next: str = "") -> None:
        super().__init__(f"{effect} was refused: {reason}", next=next)
        self.effect = effect
        self.reason = reason


class CallFailed(EffectError):
    """A recorded failure of a class that cannot be rebuilt: neither built in nor declared in the effect's `raises`."""

    code = "call_failed"

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(
            f"{type_name}: {reason}", next=f"declare {type_name} in the effect's `raises` to get it back as itself"
        )
        self.type_name = type_name
        self.reason = reason


class Compensated(EffectError):
    """A decision undid the call, so it has no result."""

    code = "compensated"

    def __init__(self, effect: str) -> None:
        super().__init__(f"{effect} was undone by its compensation", next="go on without its result")
        self.effect = effect


class ConcurrentCalls(EffectError):
    """Two calls that change the outside ran at once under one parent: after a crash nobody could tell them apart."""

    code = "concurrent_calls"

    def __init__(self, effect: str, running: str) -> None:
        super().__init__(
            f"{effect} was performed while {running} is still running under the same parent",
            next="await one after the other, or give each its own `with branch(name):`",
        )
        self.effect = effect
        self.running = running


class NoCall(EffectError):
    """`current_call()` outside a body that a layer runs."""

    code = "no_call"

    def __init__(self) -> None:
        super().__init__(
            "current_call() was read where no call is running",
            next="read it in an effect's body, under a run or under `effects.testing.PlainLayer`",
        )


class OutOfScope(EffectError):
    """A handler's block was left, or its `forward` used, elsewhere than where it belongs."""

    code = "out_of_scope"


class Parked(BaseException):
    """The call waits for decisions; programs let it pass, so it is no `Exception`."""

    def __init__(self, questions: tuple[str, ...]) -> None:
        super().__init__(questions)
        self.questions = questions
        """ids of the questions, oldest first"""

    def __str__(self) -> str:
        return f"waiting for {', '.join(self.questions)}"
