"""Programs that the worker starts in a process of their own: standard library only, so that they start in milliseconds.

They are imported by path under the name `child` (see `_process.py`), never through the `agent` package.
"""
