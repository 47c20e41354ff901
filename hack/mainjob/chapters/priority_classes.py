"""Chapter 3: an admin's policy is checked when it is written, and missing values are filled in."""

from mainjob import promise
from mainjob.installation import DEMO_LABELS, SELECTOR, Installation
from mainjob.narrator import Narrator
from mainjob.session import Session

TITLE = "PriorityClasses that no scheduler could honour are refused"

TOLERATION = "preemption-toleration.scheduling.x-k8s.io"
PART_OF = "\n    ".join(f"{key}: {value}" for key, value in DEMO_LABELS.items())


def _training(seconds: str) -> str:
    return f"""\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: demo-training
  labels:
    {PART_OF}
  annotations:
    {TOLERATION}/toleration-seconds: "{seconds}"
value: 10000
"""


def _overtime(value: int) -> str:
    return f"""\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: demo-overtime
  labels:
    {PART_OF}
  annotations:
    reprieve.dev/preemption-priority-class: demo-training
    {TOLERATION}/minimum-preemptable-priority: "50000"
value: {value}
"""


def run(installation: Installation, narrator: Narrator) -> str:
    """Refuse two PriorityClasses, admit them corrected, and show the values that were filled in."""
    session = Session(installation, narrator, "demo-priority-classes")
    session.quiet.read("delete", "priorityclasses", "-l", SELECTOR)
    _refuse_duration(session)
    _refuse_defence(session)
    return (
        "an unreadable toleration and a defence below the value are refused; corrected, they get "
        "their defaults"
    )


def _refuse_duration(session: Session) -> None:
    session.narrator.say(
        "The upstream plugin ignores a toleration that it cannot parse: the protection would not "
        "exist."
    )
    session.write("demo-training.yaml", _training("1h"))
    refused = session.refused("apply", "-f", "demo-training.yaml")
    promise.says(
        refused.stderr, "(BadRequest)", f'[{TOLERATION}/toleration-seconds]: Invalid value: "1h"'
    )
    session.narrator.say(
        "Corrected, it is admitted. Reprieve fills in the missing half with upstream's default."
    )
    session.write("demo-training.yaml", _training("3600"))
    session.run("apply", "-f", "demo-training.yaml")
    _show(session, "demo-training", "minimum-preemptable-priority", "10001")
    session.narrator.say(
        "Its value plus one: every preemptor exceeds that anyway, as the warning says."
    )


def _refuse_defence(session: Session) -> None:
    session.narrator.say("A workload's preemption priority is never below its priority.")
    session.write("overtime.yaml", _overtime(20000))
    refused = session.refused("apply", "-f", "overtime.yaml")
    promise.says(
        refused.stderr,
        "(BadRequest)",
        "[reprieve.dev/preemption-priority-class]",
        '"demo-training"',
        "20000",
    )
    session.write("overtime.yaml", _overtime(9000))
    session.run("apply", "-f", "overtime.yaml")
    _show(session, "demo-overtime", "toleration-seconds", "0")


def _show(session: Session, name: str, key: str, wanted: str) -> None:
    """Show the annotations of a PriorityClass; one of them was filled in."""
    path = (
        r"jsonpath={.metadata.annotations.preemption-toleration\.scheduling\.x-k8s\.io/" + key + "}"
    )
    shown = session.run("get", "priorityclass", name, "-o", path)
    promise.same(f"{key} of {name}", shown.stdout, wanted)
