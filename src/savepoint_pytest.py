"""The pytest plugin of the crash rig: the fixture `crash_rig`, the option `--crash-budget`, the marker `crash_budget`.

pytest loads this at every start, so it imports nothing of the rig until a test asks for the fixture.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from savepoint.crash._plugin import CrashRig

_OPTION = "--crash-budget"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--crash-budget TIME`, such as `60s`, `5m`: for each campaign of kills; it beats the marker."""
    group = parser.getgroup("savepoint crash")
    words = "time for each campaign of kills, as in 60s, 5m (default: the test's marker crash_budget, or 60s)"
    group.addoption(_OPTION, metavar="TIME", default=None, help=words)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "crash_budget(time): the time for each of this test's campaigns of kills")


@pytest.fixture
def crash_rig(request: pytest.FixtureRequest) -> "CrashRig":
    """`crash_rig.commands(start=[...], resume=[...], ledger="ledger")` kills that program everywhere, within the time
    of `--crash-budget`, and fails the test with the report where something is violated.
    """
    from savepoint._errors import Usage  # noqa: PLC0415  not at pytest's start
    from savepoint.crash._budget import seconds  # noqa: PLC0415
    from savepoint.crash._plugin import CrashRig  # noqa: PLC0415

    marker = request.node.get_closest_marker("crash_budget")
    text = request.config.getoption(_OPTION) or (marker.args[0] if marker is not None else "60s")
    try:
        return CrashRig(budget_s=seconds(str(text), option=_OPTION))
    except Usage as error:
        raise pytest.UsageError(str(error)) from error
