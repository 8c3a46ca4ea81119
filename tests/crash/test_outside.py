"""Whatever the outside does, and wherever the program dies meanwhile: once, nothing forgotten, doubts asked about.

Each fault of the outside is crossed with a kill at every arrival at every named point. By default an even share of the
kills is taken, so that together they still get to each named point; with CRASH_EXHAUSTIVE set all are, and pairs too.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from outside_program import PROGRAMS
from outside_target import HELD, OutsideTarget, Seen

from savepoint.crash import Explorer, Kill, Outside, OutsideFault, Schedule, Story, Verdict
from savepoint.crash._explore import after
from savepoint.crash._kill import NO_KILL
from savepoint.crash._server import ForkServer

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
SHARE = 1 if EXHAUSTIVE else 16
"""One of so many kills is taken."""
SEEDS = 200 if EXHAUSTIVE else 4
TAGS = {
    "READ, ONCE, IDEMPOTENT": ("read 0.look", "act 1.send", "act 2.put"),
    "ONCE with probes": ("act 0.sure", "act 1.weak"),
    "KEYED, ONCE from a thread": ("act 0.pay", "act 1.tell"),
    "COMPOSITE of READ, IDEMPOTENT, ONCE": ("act 0.errand.sure", "act 0.errand.put"),
}
DOUBTFUL = {
    "READ, ONCE, IDEMPOTENT": 2,
    "ONCE with probes": 1,
    "KEYED, ONCE from a thread": 2,
    "COMPOSITE of READ, IDEMPOTENT, ONCE": 3,
}
"""Which of its bodies is that of a ONCE call."""
FAULTS = (
    *(OutsideFault.DROPPED, OutsideFault.LOST, OutsideFault.REFUSED, OutsideFault.SLOW, OutsideFault.TWICE),
    *(OutsideFault.DIES_BEFORE, OutsideFault.DIES_APPENDING, OutsideFault.DIES_AFTER),
)
MUTE = (
    *(OutsideFault.UNSURE, OutsideFault.HELD, OutsideFault.DROPPED, OutsideFault.REFUSED),
    *(OutsideFault.DIES_BEFORE, OutsideFault.DIES_AFTER),
)
"""What leaves a probe without an answer."""


@pytest.fixture(scope="module")
def workers() -> Iterator[list[tuple[ForkServer, Outside]]]:
    """An outside each: one that dies takes the answers of all its callers with it."""
    life, here = "outside_program:live", [Path(__file__).parent]
    with ForkServer(life, path=here) as one, ForkServer(life, path=here) as other, Outside() as a, Outside() as b:
        yield [(one, a), (other, b)]


class Rig:
    """One program's explorer, and what was seen of it."""

    def __init__(self, workers: Sequence[tuple[ForkServer, Outside]], program: str, place: Path) -> None:
        targets = [OutsideTarget(program=program, server=server, outside=outside) for server, outside in workers]
        self.explorer = Explorer(workers=targets, place=place)
        self.stories: list[Story] = []

    @property
    def name(self) -> str:
        return self.explorer.workers[0].name

    def plain(self, asked: "Crossing") -> Story:
        """One run, judged; what it returns is what killed ones may return too."""
        story = self.explorer.story(asked.first, **asked.setting)
        right = evolve(story.history, setting={"right": story.history.value, **asked.setting})
        return self.explorer.judged(evolve(story, history=right))

    def lived(self, schedule: Schedule = NO_KILL, **setting: Any) -> Seen:
        """One run, right in every way that is asked of all."""
        story = self.plain(Crossing(first=schedule, setting=setting))
        assert not story.violations, f"{setting} {schedule}: {list(map(str, story.violations))}"
        return story.history

    def cross(self, crossings: "Sequence[Crossing]") -> list[Story]:
        """Runs of them all, without a further kill; those with one are lived too. Nothing is wrong with any."""
        self.explorer.references()
        with ThreadPoolExecutor(len(self.explorer.workers)) as pool:
            plain = list(pool.map(self.plain, crossings))
        self.stories += plain
        for number, (asked, story) in enumerate(zip(crossings, plain, strict=True)):
            kills = list(after(story))
            chosen = kills[number % min(asked.share, len(kills)) :: asked.share]
            # Its share of the kills misses points that few runs come by.
            chosen += [each for at, each in _by_point(kills).items() if asked.each_point and at not in self.died]
            right = {"right": story.history.value, **asked.setting}
            self.stories += self.explorer.explore(chosen, _some if EXHAUSTIVE else None, **right)
        self._check()
        return plain

    def _check(self) -> None:
        """Nothing was wrong, and a process was killed in nearly every story that is about a kill."""
        wrong = [f"{each.schedule} {each.history.setting}: {'; '.join(map(str, each.violations))}"
                 for each in self.stories if each.violations]  # fmt: skip
        assert not wrong, "\n".join(wrong)
        due = [each for each in self.stories if each.schedule.kills]
        assert sum(any(life.killed for life in each.lives) for each in due) >= 0.9 * len(due)

    @property
    def died(self) -> set[str]:
        """The named points that a process died at."""
        return {
            kill.at
            for each in self.stories
            for index, kill in each.schedule.kills.items()
            if index < len(each.lives) and each.lives[index].killed
        }


@frozen(kw_only=True)
class Crossing:
    """What an outside does, and how many of the kills after those of `first` it is crossed with."""

    setting: Mapping[str, Any]
    first: Schedule = NO_KILL
    share: int = SHARE
    each_point: bool = False
    """also at named points that none before died at"""


def wrongly(*, first: Schedule = NO_KILL, share: int = SHARE, each_point: bool = False, **setting: Any) -> Crossing:
    return Crossing(first=first, share=share, each_point=each_point, setting=setting)


def _by_point(kills: Sequence[Schedule]) -> dict[str, Schedule]:
    """Of each named point the last kill at it."""
    return {each.kills[each.last].at: each for each in kills}


def _some(pairs: Sequence[Schedule]) -> Sequence[Schedule]:
    return pairs[::9]


@pytest.fixture
def rig(request: pytest.FixtureRequest, workers: list[tuple[ForkServer, Outside]], memory: Path) -> Rig:
    return Rig(workers, request.param, memory)


def of(*programs: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", programs, indirect=True)


# -- crossed with kills -----------------------------------------------------------------------------------------------


@of(*TAGS)
@pytest.mark.timeout(3000)
def test_a_fault_of_any_call_and_a_kill_at_any_point(rig: Rig) -> None:
    # Refused once and for all: else a redone call would be another one than the one that failed.
    listed = [
        (fault, f"{call} {'*' if fault is OutsideFault.REFUSED else 1}") for call in TAGS[rig.name] for fault in FAULTS
    ]
    again = wrongly(first=Schedule({0: Kill("body.after", DOUBTFUL[rig.name])}), share=min(4, SHARE), each_point=True)
    rig.cross([again, *(wrongly(listed={name: fault}, each_point=True) for fault, name in listed)])
    assert {each.at for story in rig.stories for life in story.lives for each in life.arrivals} - rig.died == set()


@of("ONCE with probes")
@pytest.mark.timeout(3000)
def test_a_doubt_whose_probe_gets_no_answer_is_asked_about(rig: Rig) -> None:
    crossings: list[Crossing] = []
    for tag, fault, probe in product(("0.sure", "1.weak"), (OutsideFault.DROPPED, OutsideFault.LOST), MUTE):
        nth = 1 if probe in (OutsideFault.DIES_BEFORE, OutsideFault.DIES_AFTER) else "*"
        listed = {f"act {tag} 1": fault, f"probe {tag} {nth}": probe}
        crossings.append(wrongly(listed=listed, mute=True, share=2 * SHARE, probe_s=0.1))
    for story in rig.cross(crossings):
        assert story.lives[0].seen["status"] == "waiting"


@of("ONCE with probes")
@pytest.mark.timeout(3000)
def test_a_doubt_whose_probe_is_answered_late_or_twice_is_settled_as_ever(rig: Rig) -> None:
    doubts = (("0.sure", OutsideFault.DROPPED), ("0.sure", OutsideFault.LOST), ("1.weak", OutsideFault.DROPPED))
    answers = product(doubts, (OutsideFault.SLOW, OutsideFault.TWICE))
    crossings = [wrongly(listed={f"act {tag} 1": fault, f"probe {tag} *": how}) for (tag, fault), how in answers]
    for story in rig.cross(crossings):
        assert [life.seen["status"] for life in story.lives] == ["completed"]
        assert {by for *_, by in story.history.last["decided"]} == {"probe"}  # on record as said by it


@of("ONCE with probes")
@pytest.mark.timeout(3000)
def test_what_a_false_probe_of_a_resumed_run_made_happen_is_on_record_as_said_by_it(rig: Rig) -> None:
    crossings = [
        wrongly(first=Schedule({0: Kill(point, 1)}), listed={"probe 0.sure *": lie}, false=True, share=min(4, SHARE))
        for point, lie in (("body.after", OutsideFault.DENIES), ("body.before", OutsideFault.AFFIRMS))
    ]
    denied, affirmed = rig.cross(crossings)
    for story, choice, acts in ((denied, "redo", 2), (affirmed, "performed", 0)):
        assert [said[1:] for said in story.history.last["decided"]] == [[choice, "probe"]]
        assert [act.tag for act in story.history.ledger].count("0.sure") == acts  # the lie did what it says


@of("READ, ONCE, IDEMPOTENT")
@pytest.mark.timeout(3000)
def test_what_a_false_decision_made_happen_is_on_record_as_said_by_a_person(rig: Rig) -> None:
    faults = (OutsideFault.DROPPED, OutsideFault.LOST)
    dropped, lost = rig.cross([wrongly(listed={"act 1.send 1": fault}, lying=True) for fault in faults])
    for story, choice, acts in ((dropped, "redo", 2), (lost, "performed", 0)):
        assert [said[1:] for said in story.history.last["decided"]] == [[choice, "person"]]
        assert [act.tag for act in story.history.ledger].count("1.send") == acts


@of(*TAGS)
@pytest.mark.timeout(3000)
def test_an_answer_that_comes_after_the_caller_died_changes_nothing(rig: Rig) -> None:
    held = [wrongly(first=Schedule({0: HELD}), listed={f"{call} 1": OutsideFault.HELD}) for call in TAGS[rig.name]]
    for story in rig.cross(held):
        assert story.lives[0].killed
        assert [each.fault for each in story.history.received].count(OutsideFault.HELD) == 1


@of(*TAGS)
@pytest.mark.timeout(3000)
def test_faults_drawn_by_a_seed_and_a_kill_at_any_point(rig: Rig) -> None:
    rig.cross([wrongly(seed=seed, rate=0.5, mute=True) for seed in range(SEEDS)])
    assert len({each.fault for story in rig.stories for each in story.history.received}) > 2


# -- one by one -------------------------------------------------------------------------------------------------------


@of("READ, ONCE, IDEMPOTENT")
def test_a_call_whose_answer_was_dropped_is_in_doubt_at_once(rig: Rig) -> None:
    seen = rig.lived(listed={"act 1.send 1": OutsideFault.DROPPED})
    assert [life["status"] for life in seen.lives] == ["waiting", "completed"]
    [(kind, effect, key)] = seen.lives[0]["questions"]
    assert (kind, effect, seen.lives[0]["receipts"][key]) == ("in_doubt", "send", ["send", "in_doubt"])
    assert [act.tag for act in seen.ledger] == ["1.send", "2.put"]


@of("ONCE with probes")
def test_with_a_truthful_final_probe_it_is_settled_at_once_and_nothing_is_parked(rig: Rig) -> None:
    for fault, asked in ((OutsideFault.DROPPED, 1), (OutsideFault.LOST, 2)):
        seen = rig.lived(listed={"act 0.sure 1": fault})
        assert [life["status"] for life in seen.lives] == ["completed"]
        assert [(each.operation, each.tag) for each in seen.received].count(("act", "0.sure")) == asked
        assert [act.tag for act in seen.ledger] == ["0.sure", "1.weak"]


@of("READ, ONCE, IDEMPOTENT", "ONCE with probes", "KEYED, ONCE from a thread")
def test_a_refusal_is_an_outcome_it_is_raised_and_never_tried_again(rig: Rig) -> None:
    for call in TAGS[rig.name]:
        seen, tag = rig.lived(listed={f"{call} 1": OutsideFault.REFUSED}), call.split()[1]
        assert f"{tag} refused" in seen.value  # the program met it
        assert [(each.operation, each.tag) for each in seen.received].count(tuple(call.split())) == 1
        assert tag not in {act.tag for act in seen.ledger}
        statuses = [status for effect, status in seen.last["receipts"].values() if effect == tag[2:]]
        assert statuses == ["failed"]


@of("KEYED, ONCE from a thread")
def test_a_keyed_call_is_tried_once_more_with_its_key_then_asked_about(rig: Rig) -> None:
    seen = rig.lived(listed={"act 0.pay 1": OutsideFault.DROPPED})
    tries = [each.key for each in seen.received if each.tag == "0.pay"]
    assert (len(tries), len(set(tries)), len(seen.lives)) == (2, 1, 1)
    seen = rig.lived(listed={"act 0.pay 1": OutsideFault.DROPPED, "act 0.pay 2": OutsideFault.DROPPED})
    assert [life["status"] for life in seen.lives] == ["waiting", "completed"]
    assert [act.tag for act in seen.ledger] == ["0.pay", "1.tell"]


@of("KEYED, ONCE from a thread")
def test_a_keyed_call_of_a_dead_process_is_repeated_inside_its_window_and_asked_about_after_it(rig: Rig) -> None:
    for jump_s, statuses in ((5.0, [None, "completed"]), (100.0, [None, "waiting", "completed"])):
        seen = rig.lived(Schedule({0: HELD}), listed={"act 0.pay 1": OutsideFault.HELD}, jump_s=jump_s)
        assert [life.get("status") for life in seen.lives] == statuses
        assert [act.tag for act in seen.ledger] == ["0.pay", "1.tell"]


@of("READ, ONCE, IDEMPOTENT")
def test_an_idempotent_call_of_a_dead_process_is_repeated_with_its_key_and_arguments(rig: Rig) -> None:
    seen = rig.lived(Schedule({0: HELD}), listed={"act 2.put 1": OutsideFault.HELD})
    first, second = [act for act in seen.ledger if act.tag == "2.put"]
    assert (first.key, first.arguments, first.digest) == (second.key, second.arguments, second.digest)
    assert first.epoch < second.epoch


@of("ONCE with probes")
def test_a_probe_that_gives_up_waiting_parks(rig: Rig) -> None:
    """The probe's own client ends the wait; then nobody knows."""
    seen = rig.lived(
        listed={"act 0.sure 1": OutsideFault.LOST, "probe 0.sure *": OutsideFault.HELD}, mute=True, probe_s=0.1
    )
    assert [life["status"] for life in seen.lives] == ["waiting", "completed"]


# -- faults that were found, not mended yet ---------------------------------------------------------------------------


@of("ONCE with probes")
@pytest.mark.parametrize("died", [False, True])
def test_a_probe_that_hangs_parks_in_bounded_time(rig: Rig, died: bool) -> None:
    rig.explorer.lives_at_most = 2
    story = rig.explorer.story(
        Schedule({0: Kill("body.after", 1)}) if died else Schedule(),
        listed={"probe 0.sure *": OutsideFault.HELD, **({} if died else {"act 0.sure 1": OutsideFault.DROPPED})},
        probe_s=1000,
        limit_s=0.3,
        timeout_s=10.0,
    )
    assert "waiting" in [life.seen.get("status") for life in story.lives]


@of("ONCE with probes")
@pytest.mark.parametrize(("fault", "probe"), [("dropped", "denies"), ("lost", "affirms")])
def test_what_a_false_probe_of_a_living_run_made_happen_is_on_record_as_said_by_it(
    rig: Rig, fault: str, probe: str
) -> None:
    rig.lived(listed={"act 0.sure 1": fault, "probe 0.sure 1": probe}, false=True)


@of("KEYED with a short window")
def test_a_keyed_call_is_not_tried_again_after_its_window(rig: Rig) -> None:
    """Its answer did not come in time, and that time was longer than the remote remembers a key."""
    rig.lived(listed={"act 0.rush 1": OutsideFault.HELD}, probe_s=0.3)


@of("ONCE with probes")
def test_a_call_that_is_lost_each_time_is_given_up(rig: Rig) -> None:
    rig.explorer.lives_at_most = 1
    story = rig.explorer.judged(rig.explorer.story(listed={"act 0.sure *": OutsideFault.LOST}, timeout_s=1.0))
    assert Verdict.STUCK not in {each.verdict for each in story.violations}


def test_every_program_is_crossed() -> None:
    assert PROGRAMS.keys() - TAGS.keys() == {"KEYED with a short window"}
