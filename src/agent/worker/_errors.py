"""What the worker's tools refuse. The messages are read by a model: they name the thing, the cause, the next move."""


class WorkerError(Exception):
    """Root of the worker's errors: nothing was changed, unless the message says so."""


class Outside(WorkerError):
    """A path that leads out of the workspace."""


class Unsuitable(WorkerError):
    """A file that is not what the tool works on: missing, a directory, binary, a device."""


class Mismatch(WorkerError):
    """An edit whose old text is not there, or not there as often as was said."""


class NotRun(WorkerError):
    """A command that was never started: no such program, no such directory, no sandbox."""


class NoWorkspace(WorkerError):
    """A run of the worker in a world without a workspace."""
