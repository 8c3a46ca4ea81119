"""Laws 7, 8, 9, 13 and 14 over drawn programs and agents whose processes are really killed, in both modes of SQLite.

Each killed run is judged beside an unkilled one by `savepoint.crash._oracle`; a test looks at the verdicts of its law.
"""

from hypothesis import example, given
from law_kills import AGENTS, ANY, Kills, Plan, few, wrong

from savepoint.crash import Verdict


@example(plan=Plan(agent=True, name="ONCE", schedule="0@body.after:2,1@settle.after:1,2@gap.before:1", wal=False))
@example(plan=Plan(agent=False, name="ambiguous, performed", schedule="0@park.after:1,1@claim.after:1"))
@few(30)
@given(plan=ANY)
def test_law_7_once_whichever_processes_are_killed(kills: Kills, plan: Plan) -> None:
    story = kills.told(plan)
    assert not wrong(story, Verdict.DUPLICATE, Verdict.LOST)


@example(plan=Plan(agent=False, name="workspace", schedule="0@snapshot.after:2,1@fork.after:1", wal=False))
@example(plan=Plan(agent=False, name="a request that arrives late", schedule="1@settle.before:1"))
@few(30)
@given(plan=ANY)
def test_law_8_equivalence_with_an_unkilled_run_whichever_processes_are_killed(kills: Kills, plan: Plan) -> None:
    story = kills.told(plan)
    assert not wrong(story, Verdict.DIVERGED, Verdict.CORRUPT, Verdict.STUCK)


@example(plan=Plan(agent=False, name="any order", schedule="0@gap.after:1"))
@few(20)
@given(plan=ANY)
def test_law_9_identity_of_savepoints_whichever_processes_are_killed(kills: Kills, plan: Plan) -> None:
    story = kills.told(plan)
    assert story.history.ended is not None
    assert story.history.ended.ids
    assert not wrong(story, Verdict.HASH_DRIFT)


@example(plan=Plan(agent=False, name="workspace, refused", schedule="0@fork.after:1,1@body.after:1"))
@few(20)
@given(plan=ANY)
def test_law_13_host_untouched_whichever_processes_are_killed(kills: Kills, plan: Plan) -> None:
    story = kills.told(plan)
    assert not wrong(story, Verdict.LEAK)


@example(plan=Plan(agent=True, name="READ, ONCE, CONTAINED", schedule="0@outcome.after:2,1@reply.after:1"))
@few(25)
@given(plan=AGENTS)
def test_law_14_pairing_of_every_stored_transcript_whichever_processes_are_killed(kills: Kills, plan: Plan) -> None:
    story = kills.told(plan)
    assert story.history.ended is not None
    assert "transcript" in story.history.ended.points[max(story.history.ended.points)]
    assert not story.history.ended.unpaired
