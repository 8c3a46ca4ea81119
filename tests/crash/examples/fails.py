"""Needs a file that is not there."""

from pathlib import Path

Path("prices.json").read_text()
