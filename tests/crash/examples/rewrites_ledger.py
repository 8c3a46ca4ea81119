"""Begins its ledger anew each time that it is started."""

from pathlib import Path

with Path("ledger").open("w") as ledger:
    for each in ("a", "b"):
        ledger.write(f"paid {each}\n")
        ledger.flush()
