"""What every test runs under: asyncio alone, and examples that are the same on each run of the gate."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Deadlines measure the machine, not the code. Under the gate the examples are fixed: what fails there fails here.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell that starts the suite in the background has it ignore SIGINT, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
