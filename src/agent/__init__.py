"""Agents whose runs survive their process: models, tools, the loop, and the command line."""

from effects import Idempotency as Idempotency
from savepoint import RunStatus as RunStatus

from ._agent import Agent as Agent
from ._answer import ModelError as ModelError
from ._context import Context as Context
from ._entries import Denied as Denied
from ._entries import Reply as Reply
from ._entries import User as User
from ._model import Model as Model
from ._runner import Result as Result
from ._runner import decide as decide
from ._runner import fork as fork
from ._runner import resume as resume
from ._runner import run as run
from ._secret import Secret as Secret
from ._tool import Tool as Tool
from ._tool import tool as tool
