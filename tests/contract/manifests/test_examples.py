"""The examples, judged by the rules that would judge them in a cluster."""

import msgspec
import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.checkpointing import agent, checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan, HttpHint
from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of, pod_views
from reprieve_policy.verdict import Verdict
from reprieve_testing import manifests

REFUSED = sorted(path.name for path in (manifests.EXAMPLES / "refused").glob("*.yaml"))
ADMITTED = sorted(path.name for path in (manifests.EXAMPLES / "admitted").glob("*.yaml"))


def resources_in(name: str) -> list[Resource]:
    return [
        msgspec.convert(document, Resource)
        for document in manifests.read(manifests.EXAMPLES / name)
    ]


def verdict_on(name: str) -> Verdict:
    """Judge a file's objects, each with the PriorityClasses of the file for facts."""
    resources = resources_in(name)
    classes = {
        str(found.metadata.name): found for found in resources if found.kind == "PriorityClass"
    }
    return Verdict.merged(
        decide_admission(found, None, Facts(priority_classes=classes)) for found in resources
    )


@pytest.mark.parametrize("name", REFUSED)
def test_examples_of_refused_objects_are_refused(name: str) -> None:
    assert not verdict_on(f"refused/{name}").is_allowed


@pytest.mark.parametrize("name", ADMITTED)
def test_examples_of_admitted_objects_are_admitted_without_a_warning(name: str) -> None:
    verdict = verdict_on(f"admitted/{name}")
    assert verdict.is_allowed, verdict.message
    assert verdict.warnings == ()


@pytest.mark.parametrize("name", ["client", "shell", "launcher", "signal"])
def test_examples_with_the_agent_are_admitted_without_a_warning_and_get_the_agent(
    name: str,
) -> None:
    (job,) = resources_in(f"{name}/job.yaml")
    verdict = decide_admission(job, None, Facts())
    assert (verdict.message, verdict.warnings) == ("[]", ())
    (view,) = pod_views(job)
    assert agent.wants_agent(view)
    assert isinstance(agent.find_placement(view), agent.AgentPlacement)


@pytest.mark.parametrize("name", ["annotation", "grpc", "sigterm"])
def test_examples_without_the_agent_are_admitted_without_a_warning_and_get_none(
    name: str,
) -> None:
    (job,) = resources_in(f"{name}/job.yaml")
    verdict = decide_admission(job, None, Facts())
    assert (verdict.message, verdict.warnings) == ("[]", ())
    (view,) = pod_views(job)
    assert not agent.wants_agent(view)


def test_three_mistakes_are_three_violations() -> None:
    assert len(verdict_on("refused/pod-with-three-mistakes.yaml").violations) == 3


def test_the_example_namespaces_have_the_policies_that_their_comments_say() -> None:
    research, clinic = (
        namespace.parse(labels_of(found.metadata), annotations_of(found.metadata))
        for found in resources_in("admitted/namespaces.yaml")
    )
    assert isinstance(research, NamespacePolicy)
    assert (research.default_class, str(research.allowed_classes)) == (2, "0-4")
    assert isinstance(clinic, NamespacePolicy)
    assert clinic.is_sensitive


def test_the_training_job_is_admitted_and_its_hint_names_its_port() -> None:
    (document,) = manifests.read(manifests.EXAMPLES / "training-job.yaml")
    job = msgspec.convert(document, Resource)
    verdict = decide_admission(job, None, Facts())
    assert verdict.is_allowed
    assert verdict.warnings == ()
    (view,) = pod_views(job)
    plan = checkpoint_plan.parse(view.annotations, PolicySettings())
    assert isinstance(plan, CheckpointPlan)
    (port,) = document["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert plan.hint == HttpHint(port["containerPort"], "/checkpoint")
    assert plan.gives_notice
