"""Writes another line each time."""

import os
from pathlib import Path

with Path("ledger").open("a") as ledger:
    ledger.write(f"paid {os.urandom(4).hex()}\n")
