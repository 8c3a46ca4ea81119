"""Tells standard output what it did."""

import sys
from pathlib import Path

with Path("ledger").open("a") as ledger:
    ledger.write("paid\n")
sys.stdout.write("all is well\n")
