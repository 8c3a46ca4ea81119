"""Pays once; where it cannot know whether it did, it waits for a person: exit code 3."""

import os
import sys
from pathlib import Path


def write(name, text):
    handle = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, text)
    os.close(handle)


if Path("paid").exists():
    sys.exit(0)
if Path("intent").exists():
    sys.exit(3)
write("intent", b"")
write("ledger", b"paid\n")
write("paid", b"")
