"""Secrets travel by name: what a receipt, a question, a transcript or a bundle holds is never the secret itself."""

from collections.abc import Callable, Mapping
from typing import cast

from attrs import frozen

from savepoint import Missing, portable

from ._context import current_context


@portable("agent/secret", version=1)
@frozen
class Secret:
    """A reference to a secret in `deps`. A tool's parameter annotated `Secret` is `{"name": ...}` to the model."""

    name: str

    def reveal(self) -> str:
        """The secret itself; to be called in a tool's body, and its value never returned.

        `deps.secrets` (or `deps["secrets"]`) is a mapping, or a function, from name to text. Raises `Missing`: a
        placeholder is never used as if it were the secret.
        """
        deps = current_context().deps
        held = cast("Mapping[str, object]", deps).get("secrets") if isinstance(deps, Mapping) else _attribute(deps)
        if isinstance(held, Mapping):
            value = cast("Mapping[str, object]", held).get(self.name)
        else:
            value = cast("Callable[[str], object]", held)(self.name) if callable(held) else None
        if not isinstance(value, str):
            raise Missing(
                f"the secret {self.name!r} is not in deps",
                next=f"give deps.secrets[{self.name!r}], then resume the run",
            )
        return value


def _attribute(deps: object) -> object:
    return getattr(deps, "secrets", None)
