"""What every test runs under: asyncio alone, and examples that are the same on each run of the gate."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Deadlines measure the machine, not the code. Under the gate the examples are fixed: what fails there fails here.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
