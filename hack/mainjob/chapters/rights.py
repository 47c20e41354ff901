"""Chapter 2: the namespace's default class, and marks, which need a right even during an outage."""

import json

from mainjob import promise
from mainjob.installation import DEMO_LABELS, Installation
from mainjob.narrator import Narrator
from mainjob.session import Session
from realcluster.programs import WEBHOOKS

TITLE = "A namespace has a default class, and a mark needs a right"

TEAM, VAULT, TENANT = "demo-team", "demo-vault", "ada"
PART_OF = "\n    ".join(f"{key}: {value}" for key, value in DEMO_LABELS.items())

NAMESPACES = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {TEAM}
  labels:
    {PART_OF}
  annotations:
    reprieve.dev/default-preemption-class: "2"
---
apiVersion: v1
kind: Namespace
metadata:
  name: {VAULT}
  labels:
    {PART_OF}
  annotations:
    reprieve.dev/workload-type: sensitive
"""

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: plain
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: python:3-slim
    command: ["sleep", "infinity"]
"""

RIGHTS = f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: tenant
rules:
- apiGroups: [""]
  resources: [pods, pods/status]
  verbs: [get, list, watch, update, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: tenant
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: tenant
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: {TENANT}
"""

LABEL, ANNOTATION = "reprieve.dev/soft-eviction", "scheduling.koordinator.sh/soft-eviction"
MARK = json.dumps(
    {"metadata": {"labels": {LABEL: "requested"}, "annotations": {ANNOTATION: "true"}}}
)
NOTE = json.dumps({"metadata": {"annotations": {"example.com/note": "hello"}}})
UNREADABLE = (
    *("annotate", "pod", "plain", "-n", TEAM),
    *("reprieve.dev/checkpoint=sometimes", "--dry-run=server"),
)
WAYS = ((), ("--subresource=status",))
"""A patch of the pod, and one of its status, which carries the same labels and annotations."""


def run(installation: Installation, narrator: Narrator) -> str:
    """Show the classes in both namespaces, then try to set a mark without the right."""
    session = Session(installation, narrator, TEAM)
    installation.remove_namespaces(TEAM, VAULT)
    _default_classes(session)
    _try_marks(session)
    return (
        "a pod without a class gets the namespace's; a mark without the right is Forbidden, "
        "webhooks up or down"
    )


def _default_classes(session: Session) -> None:
    session.narrator.say("One namespace has a default class, the other holds sensitive workloads.")
    session.run("apply", "-f", session.write("namespaces.yaml", NAMESPACES))
    session.narrator.say("The same pod, which does not mention preemption, is created in both.")
    session.write("pod.yaml", POD)
    for namespace, wanted in ((TEAM, "2"), (VAULT, "10")):
        session.run("apply", "-n", namespace, "-f", "pod.yaml")
        session.run("get", "pod", "plain", "-n", namespace, "-L", "reprieve.dev/preemption-class")
        labels = session.quiet.get("pod", "plain", "-n", namespace)["metadata"]["labels"]
        promise.same(
            f"the class in {namespace}", labels.get("reprieve.dev/preemption-class"), wanted
        )


def _try_marks(session: Session) -> None:
    session.narrator.say(
        f"The tenant {TENANT} may patch pods and their status, but not delete them. A "
        "soft-eviction mark asks for a deletion, so it needs that right. A "
        "ValidatingAdmissionPolicy in the API server enforces this."
    )
    session.run("apply", "-n", TEAM, "-f", session.write("rights.yaml", RIGHTS))
    for subresource in WAYS:
        session.run(*_patch(NOTE, subresource))
    _try_marks_both_ways(session)
    session.narrator.say(
        "The webhooks are stopped. What they would have refused now passes (failurePolicy: Ignore) "
        "…"
    )
    session.narrator.show(session.installation.programs.stop_command(WEBHOOKS), "")
    with session.installation.without(WEBHOOKS):
        promise.keep(
            claim=not session.installation.is_guarded(),
            otherwise="the webhooks still answer after they were stopped",
        )
        session.run(*UNREADABLE)
        session.narrator.say("… but marks are guarded as before.")
        _try_marks_both_ways(session)
    session.narrator.say("The webhooks are back.")
    session.refused(*UNREADABLE)
    pod = session.quiet.get("pod", "plain", "-n", TEAM)["metadata"]
    marked = LABEL in pod["labels"] or ANNOTATION in pod["annotations"]
    promise.keep(claim=not marked, otherwise="a mark was set although every try was refused")


def _try_marks_both_ways(session: Session) -> None:
    for subresource in WAYS:
        refused = session.refused(*_patch(MARK, subresource))
        promise.says(refused.stderr.lower(), "forbidden")
        promise.says(refused.stderr, LABEL, ANNOTATION, "needs the right to delete the pod")


def _patch(document: str, subresource: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tenant's kubectl command that patches the pod or its status."""
    pod = ("patch", "pod", "plain", "-n", TEAM, f"--as={TENANT}")
    return (*pod, *subresource, "--type=merge", "-p", document)
