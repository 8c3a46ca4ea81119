"""The built-in worker: an agent with file, search and shell tools on its workspace."""

from ._agent import worker as worker
from ._availability import Availability as Availability
from ._availability import available as available

__all__ = ["Availability", "available", "worker"]
