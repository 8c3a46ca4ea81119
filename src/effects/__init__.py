"""Effects: declared operations, the handlers that answer them, and the one layer around their bodies."""

from ._ambient import monotonic as monotonic
from ._ambient import now as now
from ._ambient import random_bytes as random_bytes
from ._ambient import sleep as sleep
from ._ambient import uuid as uuid
from ._call import Call as Call
from ._call import CurrentCall as CurrentCall
from ._call import current_call as current_call
from ._effect import Effect as Effect
from ._effect import effect as effect
from ._errors import BadCall as BadCall
from ._errors import BadDeclaration as BadDeclaration
from ._errors import CallFailed as CallFailed
from ._errors import Compensated as Compensated
from ._errors import ConcurrentCalls as ConcurrentCalls
from ._errors import EffectError as EffectError
from ._errors import NoCall as NoCall
from ._errors import OutOfScope as OutOfScope
from ._errors import Parked as Parked
from ._errors import Refused as Refused
from ._handler import Forward as Forward
from ._handler import Handling as Handling
from ._handler import handler as handler
from ._handler import intercept as intercept
from ._idempotency import Idempotency as Idempotency
from ._idempotency import stricter as stricter
from ._layer import Layer as Layer
from ._layer import branch as branch
from ._policy import Fault as Fault
from ._policy import Recorded as Recorded
from ._policy import allow as allow
from ._policy import deny as deny
from ._policy import faults as faults
from ._policy import quota as quota
from ._policy import record as record
from ._policy import replay as replay
from ._probe import NotPerformed as NotPerformed
from ._probe import Performed as Performed
from ._probe import Unknown as Unknown

__all__ = [
    "BadCall",
    "BadDeclaration",
    "Call",
    "CallFailed",
    "Compensated",
    "ConcurrentCalls",
    "CurrentCall",
    "Effect",
    "EffectError",
    "Fault",
    "Forward",
    "Handling",
    "Idempotency",
    "Layer",
    "NoCall",
    "NotPerformed",
    "OutOfScope",
    "Parked",
    "Performed",
    "Recorded",
    "Refused",
    "Unknown",
    "allow",
    "branch",
    "current_call",
    "deny",
    "effect",
    "faults",
    "handler",
    "intercept",
    "monotonic",
    "now",
    "quota",
    "random_bytes",
    "record",
    "replay",
    "sleep",
    "stricter",
    "uuid",
]
