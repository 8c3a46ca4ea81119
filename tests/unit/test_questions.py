"""Questions and decisions: what may be answered, that the first answer stands, and what it lets happen."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from agent import Agent, Denied, Idempotency, Result, RunStatus, decide, resume, run, tool
from agent._message import ToolMessage
from agent.testing import ScriptedModel, call, calls, say
from effects import effect
from effects._question import CHOICES, Choice, Decision, Question, QuestionKind, choices
from savepoint import (
    Conflict,
    MemoryStore,
    Missing,
    NotPortable,
    Registry,
    Usage,
    World,
    open_store,
    resumable,
    resume_program,
    run_program,
)
from savepoint._crashpoint import CrashPoint
from savepoint._questions import read_decisions, record_decision
from savepoint._run import run_key
from savepoint._run_result import get_run
from savepoint._store import Space
from savepoint.testing import arm

ledger: list[str] = []


@pytest.fixture(autouse=True)
def _empty_ledger() -> None:
    ledger.clear()


class Killed(BaseException):
    """The process is gone."""


# -- what may be answered -----------------------------------------------------------------------------------------


def test_the_verdicts_of_each_kind() -> None:
    assert {kind.value: " ".join(verdicts) for kind, verdicts in CHOICES.items()} == {
        "in_doubt": "performed redo compensate fail",
        "performed": "performed redo compensate fail",
        "diverged": "performed compensate fail",
        "approval": "approve edit deny",
        "input": "answer",
        "budget": "grant fail",
        "poison": "redo fail",
        "damaged": "redo fail",
    }


@pytest.mark.parametrize("kind", QuestionKind)
def test_a_compensation_is_offered_only_where_there_is_one(kind: QuestionKind) -> None:
    without, with_one = choices(kind, compensation=False), choices(kind, compensation=True)
    assert Choice.COMPENSATE not in without
    assert [each for each in with_one if each is not Choice.COMPENSATE] == list(without)


@effect("question/send", idempotency=Idempotency.ONCE)
async def send(text: str) -> str:
    ledger.append(text)
    if len(ledger) == 1:
        raise TimeoutError("no answer")
    return f"sent {text}"


@resumable("question/work")
async def work(world: World) -> str:
    return await send("hello")


REGISTRY = Registry([work], effects=[send])


async def asked(store: Any) -> tuple[bytes, Question]:
    result = await run_program(work.at(), store=store, run_id="r", registry=REGISTRY)
    (question,) = result.questions
    return (await get_run(store, "r")).lineage, question


async def answer(store: Any, choice: str, value: Any = None, **more: Any) -> Decision:
    lineage, question = (await get_run(store, "r")).lineage, more.pop("question")
    decision = Decision(question=question.id, choice=Choice(choice), value=value, **more)
    return await record_decision(store, lineage, question, decision, REGISTRY.types)


async def test_a_question_says_which_call_and_why() -> None:
    _, question = await asked(MemoryStore())
    assert (question.kind, question.effect) == (QuestionKind.IN_DOUBT, "question/send")
    assert question.verdicts == (Choice.PERFORMED, Choice.REDO, Choice.FAIL)
    assert "TimeoutError" in question.why


async def test_its_id_and_arguments_are_the_same_in_every_attempt() -> None:
    store = MemoryStore()
    _, question = await asked(store)
    for _ in range(2):
        again = await resume_program("r", store=store, registry=REGISTRY)
        assert again.status is RunStatus.WAITING
        assert [(each.id, each.arguments) for each in again.questions] == [(question.id, {"text": "hello"})]
    assert ledger == ["hello"], "without a decision nothing runs"


async def test_the_first_decision_stands() -> None:
    store = MemoryStore()
    _, question = await asked(store)
    first = await answer(store, "performed", {"n": 1}, question=question, by="ann")
    repeat = await answer(store, "performed", {"n": 1}, question=question, by="bob", note="again")
    assert (repeat.by, repeat.note) == (first.by, "") == ("ann", "")
    for choice, value in (("redo", None), ("performed", {"n": True}), ("performed", None)):
        with pytest.raises(Conflict, match="was answered performed by ann already"):
            await answer(store, choice, value, question=question)


async def test_of_many_who_decide_at_once_one_wins(tmp_path: Any) -> None:
    async with open_store(tmp_path / "s") as store:
        lineage, question = await asked(store)
        verdicts = [("redo", None), ("fail", None), ("performed", 1), ("performed", 2)] * 3
        found = await asyncio.gather(
            *(answer(store, choice, value, question=question) for choice, value in verdicts), return_exceptions=True
        )
        (stands,) = (await read_decisions(store, lineage, REGISTRY.types)).values()
    for (choice, value), said in zip(verdicts, found, strict=True):
        agrees = (choice, value) == (stands.choice, stands.value)
        assert isinstance(said, Decision if agrees else Conflict)


@pytest.mark.parametrize(
    ("choice", "value", "error", "words"),
    [
        ("approve", None, Usage, "cannot be answered with approve"),
        ("compensate", None, Usage, "cannot be answered with compensate"),
        ("redo", 5, Usage, "redo takes no value"),
        ("performed", defaultdict(list), NotPortable, "the value of performed: defaultdict"),
        ("performed", [{"x": object()}], NotPortable, r"the value of performed\[0\]\.x: object"),
    ],
)
async def test_what_is_no_answer_changes_nothing(choice: str, value: Any, error: type[Exception], words: str) -> None:
    store = MemoryStore()
    lineage, question = await asked(store)
    with pytest.raises(error, match=words):
        await answer(store, choice, value, question=question)
    assert await read_decisions(store, lineage, REGISTRY.types) == {}
    assert (await resume_program("r", store=store, registry=REGISTRY)).status is RunStatus.WAITING


async def test_a_question_that_is_in_no_store_cannot_be_answered() -> None:
    store = MemoryStore()
    lineage, question = await asked(store)
    async with store.commit() as tx:
        tx.delete(Space.QUESTION, lineage + question.id.encode())
    with pytest.raises(Missing, match=f"there is no question {question.id}"):
        await answer(store, "redo", question=question)


@pytest.mark.parametrize(
    ("choice", "value", "result", "sent"),
    [("performed", "by hand", "by hand", 1), ("redo", None, "sent hello", 2), ("fail", None, None, 1)],
)
async def test_each_verdict_does_what_it_says(choice: str, value: Any, result: Any, sent: int) -> None:
    store = MemoryStore()
    _, question = await asked(store)
    await answer(store, choice, value, question=question)
    ended = await resume_program("r", store=store, registry=REGISTRY)
    assert (ended.value, len(ledger)) == (result, sent)
    assert ended.status is (RunStatus.FAILED if choice == "fail" else RunStatus.COMPLETED)


async def test_a_redo_is_consumed_by_the_intent_it_allows() -> None:
    """A crash after that asks anew: the same decision must not repeat the call twice."""
    store = MemoryStore()
    _, question = await asked(store)
    await answer(store, "redo", question=question)
    await dies(CrashPoint.BODY_AFTER, store, resume_program("r", store=store, registry=REGISTRY))
    again = await resume_program("r", store=store, registry=REGISTRY)
    assert again.status is RunStatus.WAITING
    (anew,) = [each for each in again.questions if each.id != question.id]
    assert anew.tried == question.tried + 1
    assert ledger == ["hello", "hello"]


async def dies(point: CrashPoint, store: MemoryStore, attempt: Any) -> None:
    """The attempt ends at `point` without a word, and its lock is free."""

    def hook(reached: CrashPoint) -> None:
        if reached is point:
            raise Killed

    arm(hook)
    try:
        with pytest.raises(Killed):
            await attempt
    finally:
        arm(None)
    async with store.commit() as tx:
        tx.delete(Space.LEASE, run_key("r"))


# -- approvals ----------------------------------------------------------------------------------------------------


@tool(idempotency=Idempotency.ONCE, approval=True)
async def post(text: str) -> str:
    """Posts a text."""
    ledger.append(text)
    return f"posted {text}"


@tool(idempotency=Idempotency.READ)
async def look(what: str) -> str:
    """Looks at something."""
    ledger.append(f"look {what}")
    return what


TWO = [calls(call("post", text="A"), call("look", what="x"), call("post", text="B")), say("done")]


def agent_of(turns: list[Any]) -> tuple[Agent, ScriptedModel]:
    """Rebuilt from source, as a fresh process would."""
    model = ScriptedModel(turns)
    return Agent(name="a", tools=(post, look), model=model), model


async def go_on(store: Any, turns: list[Any] = TWO) -> Result:
    return await resume("r", agent=agent_of(turns)[0], store=store)


async def waits(store: Any, turns: list[Any] = TWO) -> list[Question]:
    result = await run(agent_of(turns)[0], "go", run_id="r", store=store)
    assert result.status is RunStatus.WAITING
    assert ledger == [], "something ran before the approvals of its reply were there"
    return sorted(result.questions, key=lambda question: str(question.arguments))


def outcomes(result: Result) -> list[Any]:
    return list(result.transcript)[2:-1]


async def test_two_approvals_of_one_reply_are_two_questions_each_answered_on_its_own(tmp_path: Any) -> None:
    async with open_store(tmp_path / "s") as store:
        first, second = await waits(store)
        assert first.id != second.id
        assert (first.arguments, second.arguments) == ({"text": "A"}, {"text": "B"})
        assert {first.kind, second.kind} == {QuestionKind.APPROVAL}
        await decide("r", second.id, "approve", store=store)
    async with open_store(tmp_path / "s") as store:
        half = await go_on(store)
        assert half.status is RunStatus.WAITING
        assert [question.id for question in half.questions] == [first.id], "the one that is left"
        assert ledger == []
        await decide("r", first.id, "deny", store=store, note="not today")
        for _ in range(2):
            await decide("r", second.id, "approve", store=store)
        with pytest.raises(Conflict):
            await decide("r", second.id, "deny", store=store)
    async with open_store(tmp_path / "s") as store:
        result = await go_on(store)
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")
    assert sorted(ledger) == ["B", "look x"]
    assert outcomes(result) == [Denied(reason="not today"), "x", "posted B"]


async def test_what_runs_is_what_was_shown_or_what_the_decision_says() -> None:
    store = MemoryStore()
    first, second = await waits(store)
    await decide("r", first.id, "edit", store=store, value={"text": "A, politely"}, agent=agent_of(TWO)[0])
    await decide("r", second.id, "approve", store=store)
    changed = [calls(call("post", text="Z"), call("look", what="z"), call("post", text="Z")), say("done")]
    agent, model = agent_of(changed)
    result = await resume("r", agent=agent, store=store)
    assert result.status is RunStatus.COMPLETED
    assert sorted(ledger) == ["A, politely", "B", "look x"]
    assert model.asked == 1, "the reply that was reviewed was asked for again"


async def test_a_denied_call_is_told_to_the_model_and_nothing_else_stops() -> None:
    store = MemoryStore()
    for question in await waits(store):
        await decide("r", question.id, "deny", store=store, note="no")
    agent, model = agent_of(TWO)
    result = await resume("r", agent=agent, store=store)
    assert ledger == ["look x"]
    assert outcomes(result) == [Denied(reason="no"), "x", Denied(reason="no")]
    told = [message.text for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    assert told == ["Denied: no", "x", "Denied: no"]


async def test_a_crash_after_the_approval_asks_anew_only_for_what_is_not_settled() -> None:
    store = MemoryStore()
    one = [call("post", text="A"), say("done")]
    (question,) = await waits(store, one)
    await decide("r", question.id, "approve", store=store)
    await dies(CrashPoint.BODY_AFTER, store, go_on(store, one))
    assert ledger == ["A"]
    again = await go_on(store, one)
    assert again.status is RunStatus.WAITING
    (doubt,) = [each for each in again.questions if each.id != question.id]
    assert (doubt.kind, doubt.arguments) == (QuestionKind.IN_DOUBT, {"text": "A"})
    await decide("r", doubt.id, "performed", store=store, value="posted A")
    result = await go_on(store, one)
    assert (result.status, outcomes(result)) == (RunStatus.COMPLETED, ["posted A"])
    assert ledger == ["A"]


async def test_a_crash_before_the_intent_keeps_the_approval() -> None:
    store = MemoryStore()
    one = [call("post", text="A"), say("done")]
    (question,) = await waits(store, one)
    await decide("r", question.id, "approve", store=store)
    await dies(CrashPoint.ENTER, store, go_on(store, one))
    result = await go_on(store, one)
    assert (result.status, ledger) == (RunStatus.COMPLETED, ["A"])


# -- limits -------------------------------------------------------------------------------------------------------


async def test_the_turn_limit_holds_over_all_attempts_and_a_grant_goes_on_from_there() -> None:
    store, turns = MemoryStore(), [*(call("look", what=str(n)) for n in range(5)), say("done")]

    def limited() -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(turns)
        return Agent(name="a", tools=(look,), model=model, max_turns=4), model

    agent, model = limited()
    await dies(CrashPoint.GAP_AFTER, store, run(agent, "go", run_id="r", store=store))
    asked_in_all = model.asked
    ids: set[str] = set()
    for _ in range(3):
        agent, model = limited()
        result = await resume("r", agent=agent, store=store)
        asked_in_all += model.asked
        assert result.status is RunStatus.WAITING
        (question,) = result.questions
        assert (question.kind, question.verdicts) == (QuestionKind.BUDGET, (Choice.GRANT, Choice.FAIL))
        ids.add(question.id)
    assert asked_in_all == 4, "a resume started the count again"
    await decide("r", ids.pop(), "grant", store=store, value=2)
    assert not ids, "the same question had several ids"
    agent, model = limited()
    result = await resume("r", agent=agent, store=store)
    assert (result.status, result.output, model.asked) == (RunStatus.COMPLETED, "done", 2)


async def test_a_limit_that_is_not_raised_ends_the_run_cleanly() -> None:
    store, turns = MemoryStore(), [call("look", what="x"), say("never")]
    agent = Agent(name="a", tools=(look,), model=ScriptedModel(turns), max_turns=1)
    (question,) = (await run(agent, "go", run_id="r", store=store)).questions
    await decide("r", question.id, "fail", store=store)
    result = await resume("r", agent=agent, store=store)
    assert result.status is RunStatus.FAILED
    assert result.error is not None
    assert "limit of 1 model replies" in result.error.message
