"""What can go wrong, by whose fault it is. Every error names the thing, the cause and the next move."""

from effects._errors import Stated

VERIFY = "run `savepoint verify`: it lists all damage; nothing damaged is overwritten"
"""What is left to do about damage, where nothing better is known."""


class SavepointError(Stated):
    """Root of this package's errors."""


class NotPortable(SavepointError):
    """A value outside the value domain; `path` leads to the offender."""

    code = "not_portable"

    def __init__(self, path: str, what: str, *, next: str = "") -> None:
        super().__init__(f"{path}: {what}", next=next)
        self.path = path


class Usage(SavepointError):
    """The caller asked for something that cannot be."""

    code = "usage"


class Missing(SavepointError):
    """The store does not hold what was asked for."""

    code = "not_found"


class Corrupt(SavepointError):
    """Stored bytes are not what was written: a flipped bit, a cut, a missing part."""

    code = "damaged"

    def __init__(self, message: str, *, next: str = VERIFY) -> None:
        super().__init__(message, next=next)


class Foreign(SavepointError):
    """Bytes that this version cannot or must not read: a newer format, an unknown kind, an unregistered name."""

    code = "foreign"


class Newer(Foreign):
    """Written by a newer version; upgrade."""

    code = "newer"


class Conflict(SavepointError):
    """Two wishes that cannot both hold: a differing decision, a path changed on both sides."""

    code = "conflict"


class Stale(SavepointError):
    """A compare-and-set found another value: somebody else wrote first. Internal; users meet `Held` or `Conflict`."""

    code = "stale"


class Held(SavepointError):
    """Another process holds the run."""

    code = "held"


class NotWritable(SavepointError):
    """The store cannot be written: read-only, full, busy."""

    code = "not_writable"


class Superseded(BaseException):
    """Another attempt holds the run now: this one writes nothing and enters no body. Programs must not swallow it."""


class Stopped(BaseException):
    """The program cannot go on now, through no fault of its own (a model is unreachable): resumable as it stands."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class Halted(BaseException):
    """The attempt cannot go on (an intent could not be made durable); `cause` is what its caller is told."""

    def __init__(self, cause: SavepointError) -> None:
        super().__init__(cause)
        self.cause = cause
