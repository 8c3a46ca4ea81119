"""Agents whose runs survive their process: models, tools, the loop, and the command line."""

from effects import Idempotency as Idempotency
from savepoint import RunStatus as RunStatus

from ._agent import Agent as Agent
from ._answer import ModelError as ModelError
from ._context import Context as Context
from ._dangling import drop_dangling_tool_calls as drop_dangling_tool_calls
from ._decide import decide as decide
from ._entries import Denied as Denied
from ._entries import Lost as Lost
from ._entries import Reply as Reply
from ._entries import Trimmed as Trimmed
from ._entries import User as User
from ._fork import fork as fork
from ._model import Model as Model
from ._nested import NestedFailed as NestedFailed
from ._nested import as_tool as as_tool
from ._recovery import Resumed as Resumed
from ._recovery import resume_all as resume_all
from ._result import Result as Result
from ._results import ResultStore as ResultStore
from ._results import StoredResults as StoredResults
from ._results import recall_tool_result as recall_tool_result
from ._resume import resume as resume
from ._runner import run as run
from ._secret import Secret as Secret
from ._session import Rewindable as Rewindable
from ._session import Segment as Segment
from ._session import Session as Session
from ._stored_session import InMemorySession as InMemorySession
from ._stored_session import StoredSession as StoredSession
from ._tool import Tool as Tool
from ._tool import tool as tool
