"""The names that a user gives in options and arguments, checked before they are part of a URL path.

Without this, `-n ../pods` would read something else than a Namespace. What is empty, as from a
variable that is not set, is refused: an empty selector would select every pod.
"""

from collections.abc import Sequence
from typing import Any

import click

from reprieve_cli.output.finding import printable
from reprieve_policy.kube.names import is_namespace_name, is_object_name

_NAMESPACE_FORM = (
    "must be the name of a Namespace: at most 63 lower-case letters, digits and '-', with a letter "
    "or digit at both ends"
)
_NAME_FORM = (
    "must be the name of an object: at most 253 lower-case letters, digits, '-' and '.', with a "
    "letter or digit at both ends and beside each '.'"
)


def namespace_violation(name: str) -> str:
    """Return what is wrong with the name of a Namespace, or nothing."""
    return "" if is_namespace_name(name) else f'"{printable(name)}" {_NAMESPACE_FORM}'


def refuse_empty(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001 - click's signature
    names: Sequence[str],
) -> Sequence[str]:
    """Refuse an empty name among those of files: it would be the current folder."""
    if "" in names:
        raise click.BadParameter("a name is empty")
    return names


class NamespaceNameType(click.ParamType[str]):
    """The name of a Namespace."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or end the command with a usage error.

        Without the refusal of an empty one, some commands would take the context's namespace, and
        others all namespaces.
        """
        if not str(value).strip():
            self.fail("the name of the Namespace is empty", param, ctx)
        if violation := namespace_violation(value):
            self.fail(violation, param, ctx)
        return str(value)


class ObjectNameType(click.ParamType[str]):
    """The name of an object; `prefix`, like `node/`, may stand before it."""

    name = "text"

    def __init__(self, *, prefix: str = "") -> None:
        self._prefix = prefix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name without the prefix, or end the command with a usage error."""
        name = str(value).removeprefix(self._prefix)
        if not is_object_name(name):
            self.fail(f'"{printable(value)}" {_NAME_FORM}', param, ctx)
        return name


class PodSubjectType(click.ParamType[str]):
    """A pod, or `KIND/NAME` of a workload; which kinds there are, the command itself says."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the subject as it was given, or end the command with a usage error."""
        if not str(value).strip():
            self.fail("a name is empty", param, ctx)
        name = str(value).rpartition("/")[2]
        if name and not is_object_name(name):
            self.fail(f'"{printable(value)}" {_NAME_FORM}', param, ctx)
        return str(value)


class LabelSelectorType(click.ParamType[str]):
    """A label selector; the API server parses it."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the selector, or end the command with a usage error: a blank one selects all."""
        if not str(value).strip():
            self.fail("the selector is empty: it would select every pod", param, ctx)
        return str(value)
