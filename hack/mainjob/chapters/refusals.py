"""Chapter 1.

`kubectl apply` refuses invalid values, names all of them, and says where each one is.
"""

from mainjob import promise
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.session import Session

TITLE = "A class that does not exist is refused, in pods and in templates"

CLASS = (
    'metadata.labels[reprieve.dev/preemption-class]: Invalid value: "11": '
    "must be between 0 and 10, in plain digits"
)
THREE = (
    'metadata.labels[reprieve.dev/preemption-class]: Invalid value: "high"',
    (
        "metadata.annotations[reprieve.dev/checkpoint-hint]: Unsupported value: "
        '"http://checkpoints.example.com/save"'
    ),
    'metadata.annotations[reprieve.dev/checkpoint-timeout]: Invalid value: "10"',
)


def run(installation: Installation, narrator: Narrator) -> str:
    """Refuse a Pod, a Deployment, and three mistakes at once."""
    session = Session(installation, narrator, "demo-refusals")
    session.make_namespace()
    _refuse_pod(session)
    _refuse_deployment(session)
    _refuse_three_mistakes(session)
    left = session.run("get", "pods,deployments", "-n", session.namespace)
    promise.says(left.output, "No resources found")
    return (
        "a class outside 0-10 is refused with 400, in a Pod and in a template; three mistakes come "
        "in one answer"
    )


def _refuse_pod(session: Session) -> None:
    session.narrator.say("Preemption classes are 0 to 10. A user asks for 11.")
    path = session.example("refused/pod-class-11.yaml")
    refused = session.refused("apply", "-n", session.namespace, "-f", path)
    promise.says(refused.stderr, "Error from server (BadRequest)", CLASS)
    session.narrator.say("BadRequest is code 400, as kubectl shows with more verbosity:")
    seen = session.refused(
        "create", "-n", session.namespace, "-f", path, "-v=6", only='verb="POST"'
    )
    promise.says(seen.stderr, 'status="400 Bad Request"')


def _refuse_deployment(session: Session) -> None:
    session.narrator.say(
        "A Deployment with such a template would never get its pods. It is refused at once."
    )
    path = session.example("refused/deployment-class-11.yaml")
    refused = session.refused("apply", "-n", session.namespace, "-f", path)
    promise.says(refused.stderr, "Error from server (BadRequest)", f"spec.template.{CLASS}")


def _refuse_three_mistakes(session: Session) -> None:
    session.narrator.say("One answer names all three mistakes.")
    path = session.example("refused/pod-with-three-mistakes.yaml")
    refused = session.refused("apply", "-n", session.namespace, "-f", path)
    promise.says(refused.stderr, "Error from server (BadRequest)", *THREE)
