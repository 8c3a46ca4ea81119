r"""Which paths a workspace leaves out: `.savepointignore` at its root, a documented subset of gitignore.

Understood: comments, blank lines, `!`, a trailing `/` (directories only), a `/` elsewhere (anchored at the root), `*`,
`?`, `[...]`, `**`, `\` before a special byte; the last matching line wins; nothing below a left-out directory can be
brought back. Not understood: rule files below the root. Always left out: a directory named `.savepoint` (a store), and
names that begin with `.savepoint~` (what a killed merge left).
"""

import re
from collections.abc import Collection

from attrs import field, frozen

RULES = b".savepointignore"
STORE = b".savepoint"
TEMPORARY = b".savepoint~"


@frozen(kw_only=True)
class Rule:
    pattern: re.Pattern[bytes]
    keeps: bool
    directories_only: bool


@frozen(kw_only=True)
class Ignore:
    """The rules of one tree."""

    rules: tuple[Rule, ...] = ()
    excluded: Collection[bytes] = field(default=frozenset[bytes](), converter=frozenset[bytes])
    """paths below the root that are left out whatever the rules say: a store kept elsewhere in the tree"""

    @classmethod
    def parse(cls, text: bytes, excluded: Collection[bytes] = ()) -> "Ignore":
        rules = (_rule(line) for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
        return cls(rules=tuple(rule for rule in rules if rule is not None), excluded=excluded)

    def skips(self, path: bytes, name: bytes, *, directory: bool) -> bool:
        """Whether this path is left out, its parents being kept."""
        if name.startswith(STORE) and ((directory and name == STORE) or name.startswith(TEMPORARY)):
            return True
        if path in self.excluded:
            return True
        for rule in reversed(self.rules):
            if (directory or not rule.directories_only) and rule.pattern.fullmatch(path):
                return not rule.keeps
        return False

    def hides(self, path: bytes, *, directory: bool) -> bool:
        """Whether this path or one of its parents is left out."""
        parts = path.split(b"/")
        prefixes = (b"/".join(parts[:end]) for end in range(1, len(parts)))
        return any(self.skips(p, p.rsplit(b"/", 1)[-1], directory=True) for p in prefixes) or self.skips(
            path, parts[-1], directory=directory
        )


def _rule(line: bytes) -> Rule | None:
    text = _without_trailing_spaces(line.removesuffix(b"\r"))
    if not text or text.startswith(b"#"):
        return None
    keeps = text.startswith(b"!")
    body = text.removeprefix(b"!")
    pattern = body.rstrip(b"/")
    if not pattern:
        return None
    anchored = b"/" in pattern
    prefix = b"" if anchored else b"(?:.*/)?"
    regex = prefix + _translate(pattern.removeprefix(b"/"))
    return Rule(pattern=re.compile(regex, re.DOTALL), keeps=keeps, directories_only=body.endswith(b"/"))


def _without_trailing_spaces(line: bytes) -> bytes:
    text = line.rstrip(b" ")
    escaped = (len(text) - len(text.rstrip(b"\\"))) % 2 == 1
    return text + b" " if escaped and len(text) < len(line) else text


_TOKEN = re.compile(rb"\*\*/|/\*\*\Z|\*+|\?|\\(?s:.)|\[[!^]?\]?[^\]]*\]|(?s:.)")

_NEVER = rb"(?!)"
"""A class that is not closed or runs backwards matches nothing, as in git."""


def _translate(pattern: bytes) -> bytes:
    out: list[bytes] = []
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        starts_part = match.start() == 0 or pattern[match.start() - 1 : match.start()] == b"/"
        out.append(_piece(token, starts_part=starts_part))
    return b"".join(out)


def _piece(token: bytes, *, starts_part: bool) -> bytes:
    if token == b"**/" and starts_part:
        return b"(?:.*/)?"
    if token == b"/**":
        return b"/.+"
    if token.startswith(b"*"):
        return b"[^/]*" + (b"/" if token.endswith(b"/") else b"")
    if token == b"?":
        return b"[^/]"
    if token.startswith(b"["):
        return _class(token) if len(token) > 1 else _NEVER
    return re.escape(token[1:] if token.startswith(b"\\") and len(token) > 1 else token)


def _class(token: bytes) -> bytes:
    body = token[1:-1]
    negated = body[:1] in {b"!", b"^"}
    inner = re.sub(rb"([\\\[\]^&|~])", rb"\\\1", body[1:] if negated else body)
    try:
        re.compile(b"[" + inner + b"]")
    except re.error:
        return _NEVER
    return b"(?!/)[" + (b"^" if negated else b"") + inner + b"]"
