"""Starts a daemon, and ends before it."""

import subprocess
import sys
from pathlib import Path

with Path("ledger").open("a") as ledger:
    ledger.write("paid\n")
subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(60)"],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
)
