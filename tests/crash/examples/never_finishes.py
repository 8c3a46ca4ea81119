"""Does its work, and waits for ever."""

import threading
from pathlib import Path

with Path("ledger").open("a") as ledger:
    ledger.write("paid\n")
threading.Event().wait()
