"""What each program requested, and what it was refused for want of a right: from audit logs."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from realcluster import state
from realcluster.control_plane.components import RIGHTS_FOLDER
from realcluster.programs import NAMESPACE, OPERATOR, WEBHOOKS

PROGRAMS = (OPERATOR, WEBHOOKS)
_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:"
_DECISION = "authorization.k8s.io/decision"


class Right(NamedTuple):
    """One verb on one resource, for one program."""

    program: str
    verb: str
    resource: str
    """`pods/status`, `jobs.batch`, `podgroups.scheduling.k8s.io/status`"""


class Refusal(NamedTuple):
    """A request that was refused: which right it needed, for which object."""

    right: Right
    namespace: str
    name: str
    """Empty for a request about a collection."""


@dataclass
class Usage:
    """The rights that were used, and the requests that were refused, each with an example."""

    used: set[Right] = field(default_factory=set)
    refused: dict[Refusal, str] = field(default_factory=dict)

    def add(self, other: "Usage") -> None:
        """Add what another cluster's programs used."""
        self.used |= other.used
        self.refused = other.refused | self.refused

    def render(self) -> str:
        """Return the usage as JSON."""
        refused = [
            [*refusal.right, refusal.namespace, refusal.name, example]
            for refusal, example in sorted(self.refused.items())
        ]
        return json.dumps({"used": sorted(self.used), "refused": refused}, indent=1)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `render` wrote."""
        found = json.loads(text)
        used = {Right(*right) for right in found["used"]}
        refused = {
            Refusal(Right(*right), namespace, name): example
            for *right, namespace, name, example in found["refused"]
        }
        return cls(used, refused)


def collect(name: str) -> None:
    """Write what the programs of a cluster used, where a run asks for it."""
    folder, cluster = os.environ.get(RIGHTS_FOLDER), state.find(name)
    if folder and cluster is not None and cluster.audit_log.exists():
        text = read(audit_files(cluster.audit_log)).render()
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{cluster.name}-{os.getpid()}-{os.urandom(4).hex()}.json").write_text(text)


def audit_files(log: Path) -> list[Path]:
    """Return a log and its predecessors, which were renamed when they were full."""
    return [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]


def read_folder(folder: Path) -> Usage:
    """Return what all clusters of a run used."""
    usage = Usage()
    for file in sorted(folder.glob("*.json")):
        usage.add(Usage.parse(file.read_text()))
    return usage


def read(files: Iterable[Path]) -> Usage:
    """Return what the programs of one cluster used."""
    usage = Usage()
    for entry in _entries(files):
        right = right_of(entry)
        if right is None:
            continue
        if entry.get("annotations", {}).get(_DECISION) == "forbid":
            target = entry["objectRef"]
            refusal = Refusal(right, target.get("namespace", ""), target.get("name", ""))
            usage.refused.setdefault(refusal, entry["requestURI"])
        else:
            usage.used.add(right)
    return usage


def right_of(entry: Mapping[str, Any]) -> Right | None:
    """Return the right that a request needs; `None` if it is no request of a program.

    A test that acts with a program's token is not the program: its client has another name.
    """
    program = entry["user"]["username"].removeprefix(_ACCOUNT)
    target = entry.get("objectRef")
    is_program = program in PROGRAMS and entry.get("userAgent") == program
    is_answered = entry["stage"] in ("ResponseStarted", "ResponseComplete")
    if target is None or not is_program or not is_answered or "impersonatedUser" in entry:
        return None
    group, subresource = target.get("apiGroup", ""), target.get("subresource", "")
    resource = target["resource"] + (f".{group}" if group else "")
    return Right(program, entry["verb"], resource + (f"/{subresource}" if subresource else ""))


def _entries(files: Iterable[Path]) -> Iterator[Any]:
    for file in files:
        with file.open() as lines:
            for line in lines:
                # Most lines are about other users, and need not be decoded.
                if _ACCOUNT in line and line.endswith("\n"):
                    yield json.loads(line)
