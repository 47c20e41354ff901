"""The rights that the manifests grant, beside those that a run used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from realcluster.programs import OPERATOR, WEBHOOKS
from reprieve_testing import manifests

from .usage import PROGRAMS, Refusal, Right, Usage

OPTIONAL_ROLES = {
    "reprieve-bare-pods": OPERATOR,
    "reprieve:read-nodes": OPERATOR,
    "reprieve:reclaim-nodes": OPERATOR,
    "reprieve:send-signals": OPERATOR,
}
"""Roles of the base that only an admin binds."""
COMPONENTS = {"extender": WEBHOOKS, "ui": OPERATOR}
"""Components with a role of their own."""

UNSEEN: Mapping[Right, str] = {
    Right(OPERATOR, "report", "softevictions.reprieve.dev"): "checked inside admission",
    Right(WEBHOOKS, "mark", "softevictions.reprieve.dev"): "checked inside admission",
    Right(OPERATOR, "create", "pods/exec"): "checked beside `get`, which the log has",
    Right(WEBHOOKS, "get", "namespaces"): (
        "for a Namespace that is newer than the watch "
        "(test_an_object_that_no_watch_has_seen_is_read_once)"
    ),
}
"""Rights that an audit log does not show, or only by chance, and why."""

FOR_EVERY_ACCOUNT = {
    Right(program, "create", "selfsubjectaccessreviews.authorization.k8s.io")
    for program in PROGRAMS
}
"""Granted by Kubernetes itself (`system:basic-user`)."""


@dataclass(frozen=True)
class Difference:
    """How the rights that were used differ from those that are granted."""

    unused: tuple[Right, ...]
    refused: Mapping[Right, str]
    """What is not granted for that object. What is granted is refused too: where a test took it
    away, where no admin bound the optional role, and by an API server that has not read the roles
    yet."""
    ungranted: tuple[Right, ...]
    """Used by a right that no role of the manifests grants: a test bound another role."""

    def __bool__(self) -> bool:
        return bool(self.unused or self.refused or self.ungranted)

    def render(self) -> str:
        """Return a table of all differences."""
        rows = [
            *(("never used", right, "") for right in self.unused),
            *(("refused", right, example) for right, example in sorted(self.refused.items())),
            *(("used, not granted", right, "") for right in self.ungranted),
        ]
        cells = [
            (what, right.program, right.verb, right.resource, more) for what, right, more in rows
        ]
        widths = [max((len(row[column]) for row in cells), default=0) for column in range(5)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        )


def compare(usage: Usage) -> Difference:
    """Compare what a run used with the roles of the manifests."""
    grants = list(_grants())
    granted = {grant.right for grant in grants}
    refused = {
        refusal.right: example
        for refusal, example in usage.refused.items()
        if not any(grant.covers(refusal) for grant in grants)
    }
    return Difference(
        unused=tuple(sorted(granted - usage.used - UNSEEN.keys())),
        refused=refused,
        ungranted=tuple(sorted(usage.used - granted - FOR_EVERY_ACCOUNT)),
    )


def granted_rights() -> set[Right]:
    """Return the rights of the base's bound and optional roles, and of the components'."""
    return {grant.right for grant in _grants()}


class _Grant(NamedTuple):
    right: Right
    namespace: str | None
    """`None`: all."""
    names: frozenset[str]
    """Empty: all objects."""

    def covers(self, refusal: Refusal) -> bool:
        return (
            self.right == refusal.right
            and self.namespace in (None, refusal.namespace)
            and (not self.names or refusal.name in self.names)
        )


def _grants() -> Iterator[_Grant]:
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in manifests.of_kind(kind):
            role = manifests.named(binding["roleRef"]["kind"], binding["roleRef"]["name"])
            for program in _programs_of(binding):
                yield from _grants_in(role, program, binding["metadata"].get("namespace"))
    for name, program in OPTIONAL_ROLES.items():
        yield from _grants_in(manifests.named("ClusterRole", name), program)
    for component, program in COMPONENTS.items():
        for document in manifests.read(
            manifests.MANIFESTS / "components" / component / "rbac.yaml"
        ):
            if document["kind"] == "ClusterRole":
                yield from _grants_in(document, program)


def _programs_of(binding: Any) -> Iterator[str]:
    for subject in binding["subjects"]:
        if subject["kind"] == "ServiceAccount" and subject["name"] in PROGRAMS:
            yield subject["name"]


def _grants_in(role: Any, program: str, namespace: str | None = None) -> Iterator[_Grant]:
    for rule in role["rules"]:
        names = frozenset(rule.get("resourceNames", ()))
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural, slash, subresource = resource.partition("/")
                name = f"{plural}.{group}" if group else plural
                for verb in rule["verbs"]:
                    right = Right(program, verb, f"{name}{slash}{subresource}")
                    yield _Grant(right, namespace, names)
