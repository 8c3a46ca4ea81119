"""Searches files for a regular expression, as a program of its own: `re` cannot be interrupted, a process can.

Arguments: an open directory, its path, a file's name in it or nothing, pattern, glob, most matches, most bytes,
seconds. Prints one match a line; exit code 2 with a message for a pattern that is none.
"""

import os
import re
import stat
import sys
from signal import ITIMER_REAL, SIG_DFL, SIGALRM, setitimer, signal

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
BINARY_PROBE, SHOWN = 8192, 300
PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^]]+\]|.", re.DOTALL)


def glob_expression(glob: str) -> str:
    """`*` and `?` stay within a name, `**` does not; a glob without a slash is about the last name alone."""
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def part(found: re.Match[str]) -> str:
        text = found[0]
        if text in known:
            return known[text]
        return f"[{text[1:].replace('!', '^', 1)}" if len(text) > 1 else re.escape(text)

    return ("" if "/" in glob else "(?:.*/)?") + PARTS.sub(part, glob.removeprefix("/"))


class Search:
    """One walk in byte order; stops at the first bound that it meets."""

    def __init__(self, pattern: str, glob: str, matches: int, size: int) -> None:
        self._pattern = re.compile(pattern)
        self._glob = re.compile(glob_expression(glob), re.DOTALL)
        self._matches = matches
        self._bytes = size
        self._unread = 0

    def end(self) -> None:
        if self._unread:
            _say(f"[{self._unread} files or directories could not be read]")

    def directory(self, directory: int, prefix: str) -> None:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            if entry.is_symlink() or entry.name == ".git":
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    below = os.open(entry.name, DIRECTORY, dir_fd=directory)
                    try:
                        self.directory(below, f"{prefix}{entry.name}/")
                    finally:
                        os.close(below)
                elif self._glob.fullmatch(prefix + entry.name):
                    self.file(directory, entry.name, prefix + entry.name)
            except OSError:  # unreadable, or gone by now
                self._unread += 1

    def file(self, directory: int, name: str, path: str) -> None:
        with os.fdopen(os.open(name, FILE, dir_fd=directory), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or b"\0" in file.read(BINARY_PROBE):
                return
            file.seek(0)
            for number, line in enumerate(iter(lambda: file.readline(1 << 20), b""), 1):
                self._bytes -= len(line)
                if self._bytes < 0:
                    self._stop("the search read as much as it may; search a smaller path or glob")
                text = line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
                if found := self._pattern.search(text):
                    if self._matches == 0:
                        self._stop("there are more matches; use a narrower pattern, path or glob")
                    self._matches -= 1
                    _say(f"{path}:{number}: {_around(text, found)}")

    def _stop(self, why: str) -> None:
        _say(f"[{why}]")
        sys.exit(0)


def _around(text: str, found: re.Match[str]) -> str:
    start = max(0, found.start() - SHOWN // 2) if len(text) > SHOWN else 0
    return text[start : start + SHOWN]


def _say(text: str) -> None:
    sys.stdout.buffer.write(os.fsencode(text).decode("utf-8", "backslashreplace").encode() + b"\n")
    sys.stdout.buffer.flush()  # what was found before the time was up is not lost


def main() -> None:
    directory, path, name, pattern, glob, matches, size, seconds = sys.argv[2:]
    signal(SIGALRM, SIG_DFL)  # the kernel ends us: no Python code need run, not even when our owner is dead
    setitimer(ITIMER_REAL, float(seconds))
    try:
        search = Search(pattern, glob, int(matches), int(size))
    except re.error as error:
        _say(str(error))
        sys.exit(2)
    if name:
        search.file(int(directory), name, f"{path}{name}")
    else:
        search.directory(int(directory), path)
    search.end()
