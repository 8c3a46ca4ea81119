"""Answering the questions of a waiting run."""

import json

from effects._question import Choice, Decision, Question
from savepoint._errors import Missing, Usage
from savepoint._questions import every_question, record_decision
from savepoint._resumable import OURS
from savepoint._run_result import get_run
from savepoint._store import Store

from ._agent import Agent
from ._arguments import BadArguments
from ._entries import TYPES
from ._graph import graph_of


async def decide(
    run_id: str,
    question: Question | str,
    verdict: Choice | str,
    *,
    store: Store,
    value: object = None,
    note: str = "",
    by: str = "person",
    agent: Agent | None = None,
) -> Decision:
    """Answers a question (or its id) of a waiting run, durably; `resume` then goes on. The first answer stands.

    `value`: the result that a `performed` call had, the arguments of an `edit` (checked where the `agent` is given), the
    number of a `grant`. Raises `Missing`, `Usage` (a verdict that the question does not offer, a value that does not
    fit), `Conflict` (it was answered otherwise).
    """
    question = question.id if isinstance(question, Question) else question
    record = await get_run(store, run_id)
    types = OURS | TYPES if agent is None else OURS | graph_of(agent).types
    questions = {each.id: each for each in await every_question(store, record.lineage, types)}
    if question not in questions:
        known = ", ".join(questions) or "none"
        raise Missing(f"run {run_id} has no question {question}", next=f"its questions: {known}")
    try:
        choice = Choice(verdict)
    except ValueError:
        offered = ", ".join(questions[question].verdicts)
        raise Usage(f"{verdict!r} is not a verdict", next=f"one of: {offered}") from None
    if choice is Choice.EDIT and agent is not None:
        _must_fit(agent, questions[question].effect, value)
    decision = Decision(question=question, choice=choice, value=value, note=note, by=by)
    return await record_decision(store, record.lineage, questions[question], decision, types)


def _must_fit(agent: Agent, name: str, arguments: object) -> None:
    """Raises `Usage` where a tool cannot be called with the arguments of an `edit`."""
    tool = graph_of(agent).tools.get(name)
    try:
        if tool is not None:
            tool.parse(json.dumps(arguments))
    except (BadArguments, TypeError, ValueError) as error:
        raise Usage(f"{name} cannot be called so: {error}", next="give all its arguments as one JSON object") from None
