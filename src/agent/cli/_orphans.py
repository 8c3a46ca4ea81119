"""Runs that lost their process are named when a command starts: nobody else may ever look."""

from collections.abc import Sequence

from savepoint import Corrupt
from savepoint._orphans import survey_orphans
from savepoint._store import Store

from ._common import Desk
from ._output import printable

NAMED = 5
"""Runs that are named; the others are counted."""


async def note_orphans(desk: Desk, store: Store, *, besides: str) -> None:
    """Tells people of the orphaned runs other than the one asked for. Damage is another command's to tell."""
    try:
        found, _ = await survey_orphans(store)
    except Corrupt as error:
        desk.output.note(f"runs that lost their process cannot be listed: {error.message} (next: savepoint verify)")
        return
    if others := [record.run_id for record in found if record.run_id != besides]:
        desk.output.note(f"{lost(others)}; {desk.report.command('resume', '--all')} continues them")


def lost(run_ids: Sequence[str]) -> str:
    """`2 runs lost their process: a, b`."""
    named = ", ".join(map(printable, run_ids[:NAMED]))
    more = f" and {len(run_ids) - NAMED} more" if len(run_ids) > NAMED else ""
    whose = "1 run lost its process" if len(run_ids) == 1 else f"{len(run_ids)} runs lost their process"
    return f"{whose}: {named}{more}"
