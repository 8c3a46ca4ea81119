"""The commands and their options. What each does lies in the module of its kind."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from agent._recovery import POISON_AFTER, TRIES
from savepoint import Usage
from savepoint._claim import LEASE_S
from savepoint._run import IfExists, Recovery

from . import _recovery, _run, _sessions, _settle, _show
from ._common import VOICE, Common, Desk
from ._signals import interruptible

COMMON = Common()


def release() -> str:
    """The installed version; from a source tree there is none."""
    try:
        return version("portable-savepoints")
    except PackageNotFoundError:
        return "0+source"


Model = Annotated[
    str | None,
    Parameter(help="openai:NAME, or script:FILE, a JSON list of turns (default: SAVEPOINT_MODEL, or the agent's own)."),
]
Workspace = Annotated[Path | None, Parameter(help="The directory that the run works on, in a fork of it.")]
Into = Annotated[Path | None, Parameter(help="The directory to change, where it is not the one of the run.")]
MaxTurns = Annotated[int | None, Parameter(help="Model replies of the run, over all its attempts.")]
Allow = Annotated[
    list[str] | None,
    Parameter(negative="", help="A tool that may be called, no other then. May be repeated."),
]
Lease = Annotated[
    float, Parameter(name="--lease", help="Seconds that this process is believed without a sign of life.")
]
Run = Annotated[str, Parameter(name="RUN", help="Its id, or the beginning of it.")]
Target = Annotated[str | None, Parameter(help="The agent, where it is not the one that the run started with.")]
Owner = Annotated[
    str | None, Parameter(help="An agent that knows the classes of its results, where no run of it is known here.")
]
Merge = Annotated[bool, Parameter(negative="", help="Bring the changes into the workspace when the run completes.")]

app = App(
    name="savepoint",
    help="Run agents that survive a kill at any point.",
    version=release,
    help_epilogue=(
        "Exit codes: 0 done, 1 failed, 2 usage, 3 waiting, 4 not found, 5 held, 6 damaged, 7 newer store, "
        "8 conflict, 9 not writable, 130 interrupted."
    ),
)
"""The commands, each an `async` function that returns its exit code."""


@app.command
async def demo(
    *,
    keep: Annotated[
        bool, Parameter(negative="", help="Leave its directory: the store, the ledger, the results.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """See it work in a minute, offline: an agent is killed in the middle of a call, and resumed."""
    from agent.demo import demo as play  # noqa: PLC0415  only this command pays for it

    if common.store is not None:
        raise Usage("the demo has a store of its own", next="leave out --store; --keep leaves everything for a look")
    with interruptible(lambda: None):  # SIGTERM too: its directory goes with it
        return await play(json=common.json, keep=keep)


@app.command(usage="Usage: savepoint run [OPTIONS] TARGET [INPUT]")
async def run(
    target: str,
    text: Annotated[str | None, Parameter(name="INPUT")] = None,
    /,
    *,
    run_id: str | None = None,
    workspace: Workspace = None,
    model: Model = None,
    if_exists: IfExists = IfExists.RESUME,
    session: str | None = None,
    resume_from: Annotated[str | None, Parameter(name="--resume-from")] = None,
    max_turns: MaxTurns = None,
    allow: Allow = None,
    read_only: Annotated[bool, Parameter(negative="", help="What is changed in its world is undone.")] = False,
    delete_on_success: Annotated[bool, Parameter(negative="")] = False,
    auto_resume: Annotated[bool, Parameter(negative="")] = False,
    merge: Merge = False,
    lease_s: Lease = LEASE_S,
    recovery: Recovery = Recovery.REUSE,
    abandon: Annotated[bool, Parameter(negative="")] = False,
    common: Common = COMMON,
) -> int:
    """Run an agent. Its changes stay in a fork of the workspace until they are merged.

    Parameters
    ----------
    target
        module:attribute, an Agent or a function annotated to return one; or the built-in worker.
    text
        What it is to do: a text, - for stdin, or @FILE.
    run_id
        An idempotency key: a run that completed is answered from the store.
    if_exists
        What to do with a run of this id: resume it, restart it, fail, or resume-only (never start one).
    session
        The conversation that it goes on with, and lands in when it completes: savepoint sessions.
    resume_from
        Start with this savepoint, whole, instead of INPUT: its id, as savepoint show prints it.
    delete_on_success
        Keep nothing of a run that completed but its id, which never runs again.
    auto_resume
        First continue the runs of TARGET that lost their process. What they say goes to stderr.
    recovery
        What a performed call after the savepoint means: reuse its result, or ask (strict).
    abandon
        With --if-exists restart: forget calls that are in doubt.
    """
    start = _run.Start(
        workspace=workspace, model=model, max_turns=max_turns, allowed_tools=allow, read_only=read_only or None,
        lease_s=lease_s, merge=merge,
    )  # fmt: skip
    begin = _run.Begin(
        run_id=run_id, if_exists=if_exists, session_id=session, resume_from=resume_from,
        delete_on_success=delete_on_success, recovery=recovery, abandon=abandon,
    )  # fmt: skip
    desk = Desk(common=common)
    return await _run.run(desk, target, text, start, begin, _recovery.continuing(desk) if auto_resume else None)


@app.command
async def runs(
    *,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Runs that are nested in others too.")] = False,
    common: Common = COMMON,
) -> int:
    """List the runs, the newest first."""
    return await _show.runs(Desk(common=common), every=every)


@app.command
async def show(run: Run, /, *, common: Common = COMMON) -> int:
    """Show one run: its steps, attempts, open questions, and where it can be resumed."""
    return await _show.show(Desk(common=common), run)


@app.command
async def log(run: Run, /, *, common: Common = COMMON) -> int:
    """List a run's receipts: what it did, and what is known of it."""
    return await _show.log(Desk(common=common), run)


@app.command(usage="Usage: savepoint resume [OPTIONS] RUN | --all")
async def resume(
    run: Annotated[str | None, Parameter(name="RUN", help="Its id, or the beginning of it.")] = None,
    /,
    *,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
    tries: int | None = None,
    poison_after: int | None = None,
    target: Target = None,
    workspace: Workspace = None,
    model: Model = None,
    max_turns: MaxTurns = None,
    allow: Allow = None,
    read_only: bool | None = None,
    strict: bool | None = None,
    merge: Merge = False,
    lease_s: Lease = LEASE_S,
    common: Common = COMMON,
) -> int:
    """Continue a stopped run; a completed one is answered from the store. What it was held to holds if not named here.

    Parameters
    ----------
    every
        Instead of RUN: every run that lost its process, one after the other.
    tries
        With --all: attempts at a run whose model cannot be reached (3).
    poison_after
        With --all: failures in a row from one savepoint after which the run waits with a question (5).
    read_only
        Undo what is changed in its world, or no more.
    strict
        Refuse an agent that changed since the savepoint, or only warn (default: as the run started).
    """
    start = _run.Start(
        target=target, workspace=workspace, model=model, max_turns=max_turns, allowed_tools=allow, read_only=read_only,
        strict=strict, lease_s=lease_s, merge=merge,
    )  # fmt: skip
    if run is not None and not every:
        _only_with_all({"--tries": tries, "--poison-after": poison_after})
        return await _run.resume(Desk(common=common), run, start)
    if run is not None or not every:
        what = "both RUN and --all" if every else "neither RUN nor --all"
        raise Usage(f"savepoint resume: {what}", next="name one RUN, or write --all for those that lost their process")
    _of_one_run(
        {
            "--target": target,
            "--workspace": workspace,
            "--allow": allow,
            "--read-only": read_only,
            "--strict": strict,
        }
    )
    options = _recovery.All(
        tries=TRIES if tries is None else tries, poison_after=POISON_AFTER if poison_after is None else poison_after
    )
    return await _recovery.resume_all(Desk(common=common), start, options)


def _of_one_run(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise Usage(f"{name} is of one run, and --all is of several", next=f"leave out {name}, or resume one RUN")


def _only_with_all(options: Mapping[str, int | None]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise Usage(f"{given[0]} goes with --all", next="leave it out, or write --all instead of RUN")


@app.command
async def decide(
    run: Run,
    question: Annotated[str, Parameter(help="Its id, or the beginning of it.")],
    verdict: str,
    /,
    *,
    value: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    note: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    common: Common = COMMON,
) -> int:
    """Answer a question of a waiting run. The first answer stands.

    Parameters
    ----------
    verdict
        One of those that the question offers: savepoint show RUN.
    value
        JSON: the result that a performed call had, the arguments of an edit, an answer, the number of a grant.
    note
        Why, in words; kept with the decision.
    """
    return await _settle.decide(Desk(common=common), run, question, verdict, value=value, note=note)


@app.command
async def cancel(run: Run, /, *, common: Common = COMMON) -> int:
    """Stop a run for good."""
    return await _settle.cancel(Desk(common=common), run)


@app.command
async def fork(
    run: Run,
    /,
    *,
    at: Annotated[int | None, Parameter(help="The step of the savepoint (default: the newest).")] = None,
    run_id: Annotated[str | None, Parameter(help="The id of the fork.")] = None,
    no_run: Annotated[bool, Parameter(negative="", help="Make it, and leave it to be resumed.")] = False,
    target: Target = None,
    workspace: Workspace = None,
    model: Model = None,
    merge: Merge = False,
    lease_s: Lease = LEASE_S,
    common: Common = COMMON,
) -> int:
    """Start a new run from a savepoint of another one. It shares no receipts: later calls are made anew."""
    start = _run.Start(target=target, workspace=workspace, model=model, lease_s=lease_s, merge=merge)
    return await _run.fork(Desk(common=common), run, start, at=at, fork_id=run_id, enter=not no_run)


@app.command
async def merge(run: Run, /, *, workspace: Into = None, common: Common = COMMON) -> int:
    """Bring what a completed run changed into its workspace; refused where both changed the same paths."""
    return await _settle.merge(Desk(common=common), run, workspace=workspace)


@app.command
async def discard(run: Run, /, *, common: Common = COMMON) -> int:
    """Drop what an ended run changed."""
    return await _settle.discard(Desk(common=common), run)


@app.command
async def rm(
    run: Run,
    /,
    *,
    abandon: Annotated[
        bool, Parameter(negative="", help="Also over calls that are in doubt, or a merge that was begun.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Remove a run that nobody holds. Its id stays taken, and the result of a completed one stays."""
    return await _settle.remove(Desk(common=common), run, abandon=abandon)


@app.command(usage="Usage: savepoint crash [OPTIONS] [TARGET [INPUT]]")
async def crash(
    target: str | None = None,
    text: Annotated[str | None, Parameter(name="INPUT")] = None,
    /,
    *,
    start: str | None = None,
    resume: str | None = None,
    ledger: str | None = None,
    kills: Literal["single", "double", "storm"] = "single",
    budget: str = "60s",
    only: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    first: Annotated[bool, Parameter(negative="--keep-going")] = False,
    compare: Annotated[list[str] | None, Parameter(negative="")] = None,
    copy: Annotated[list[str] | None, Parameter(negative="")] = None,
    parked_code: int = 3,
    allow_stdout: Annotated[bool, Parameter(negative="")] = False,
    process_time: Annotated[str, Parameter(name="--timeout")] = "30s",
    jobs: int | None = None,
    junit: Path | None = None,
    report: Path | None = None,
    common: Common = COMMON,
) -> int:
    """Kill a program everywhere, for real, and see whether it survives: design/crash-guide.md.

    Parameters
    ----------
    target
        An agent, as in savepoint run; instead of --start and --resume.
    text
        What the agent is to do.
    start
        The command that starts the program, in quotes. Each run has a fresh directory.
    resume
        The command that goes on after a kill (default: that of --start). Exit code 0 means done.
    ledger
        The file in that directory that the program's own outside writes, one line an effect.
    kills
        One at every place, two at every pair of places, or storms of up to six.
    budget
        The time for it all, as in 60s, 5m, 1h. Where that is too short a part is tried, evenly spread.
    only
        One schedule, as the report prints it.
    first
        End with the first violation.
    compare
        A file or directory whose content at the end must equal that of an unkilled run. May be repeated.
    copy
        A file or directory of here that every run begins with. May be repeated.
    parked_code
        The exit code that means: the run waits for a decision.
    allow_stdout
        The program may print to standard output.
    process_time
        The time for one process.
    jobs
        Processes at once (default: one a processor).
    junit
        Write the report there, as JUnit XML.
    report
        Write the report there: as JSON if the name ends in .json, else as text.
    """
    from ._crash import Wish  # noqa: PLC0415  only this command pays for it
    from ._crash import crash as kill  # noqa: PLC0415

    wish = Wish(
        target=target, text=text, start=start, resume=resume, ledger=ledger, kills=kills, budget=budget, only=only,
        first=first, junit=junit, report=report, parked_code=parked_code, allow_stdout=allow_stdout,
        compare=compare or (), copies=copy or (), timeout=process_time, jobs=jobs,
    )  # fmt: skip
    return await kill(wish, common, VOICE.get())


@app.command(usage="Usage: savepoint sessions [OPTIONS] [SESSION]")
async def sessions(
    session: Annotated[str | None, Parameter(name="SESSION", help="Show this one.")] = None,
    /,
    *,
    entries: Annotated[bool, Parameter(negative="", help="Print the conversation of SESSION.")] = False,
    target: Owner = None,
    common: Common = COMMON,
) -> int:
    """List the sessions, or show one: the parts of its runs, and the runs that have not landed."""
    if session is not None:
        return await _sessions.session(Desk(common=common), session, target, entries=entries)
    if entries:
        raise Usage("--entries is of one session, and none is named", next="savepoint sessions SESSION --entries")
    return await _sessions.sessions(Desk(common=common))


@app.command(usage="Usage: savepoint rewind SESSION (--keep-entries N | --keep-runs N)")
async def rewind(
    session: Annotated[str, Parameter(name="SESSION")],
    /,
    *,
    keep_entries: Annotated[
        int | None, Parameter(help="The first N entries: savepoint sessions SESSION --entries.")
    ] = None,
    keep_runs: Annotated[int | None, Parameter(help="The parts of the first N runs.")] = None,
    target: Owner = None,
    common: Common = COMMON,
) -> int:
    """Drop the end of a session. A run that began on what goes is not resumed, and does not land."""
    return await _sessions.rewind(Desk(common=common), session, target, keep_entries=keep_entries, keep_runs=keep_runs)


@app.command
async def trim(
    session: Annotated[str, Parameter(name="SESSION")],
    /,
    *,
    keep_chars: Annotated[int, Parameter(help="Characters that stay of each result.")] = 400,
    keep_runs: Annotated[int, Parameter(help="The last N runs are left as they are.")] = 1,
    archive: Annotated[
        bool, Parameter(help="Keep the whole texts in the store, for the tool recall_tool_result.")
    ] = True,
    target: Owner = None,
    common: Common = COMMON,
) -> int:
    """Cut the tool results of a session's old runs short: what is sent to the model shrinks."""
    return await _sessions.trim(
        Desk(common=common), session, target, keep_chars=keep_chars, keep_runs=keep_runs, archive=archive
    )


@app.command
async def verify(*, common: Common = COMMON) -> int:
    """Read every byte of the store, and list what is damaged or missing."""
    return await _show.verify(Desk(common=common))
