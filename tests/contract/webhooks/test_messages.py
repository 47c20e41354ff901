"""Every text that a kubectl user may read, pinned in one file.

To change a text, delete `golden/messages.txt`, run this test twice, and read the difference.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reprieve_policy import keys
from reprieve_policy.admission import manifest_form
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE, CLAIM_SENSITIVE
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.admission.rules import RULES
from reprieve_policy.config import namespace
from reprieve_policy.config import settings as policy_settings
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts, GangTraits, JobRequests
from reprieve_policy.kube.kinds import CUSTOM
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import (
    Container,
    ContainerPort,
    EmptyDir,
    NameOnly,
    ObjectMeta,
    PodTemplate,
    Resource,
    ResourceRequirements,
    SecurityContext,
    Spec,
    TemplatedResource,
    Volume,
    VolumeMount,
)
from reprieve_policy.verdict import Verdict
from reprieve_testing.objects import builders
from reprieve_testing.objects.builders import a_policy_map

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.txt"


POD_SPEC = Spec(priority=500)


def a_pod(
    labels: dict[str, str] | None = None, spec: Spec = POD_SPEC, **annotations: str
) -> Resource:
    metadata = ObjectMeta(name="p", labels=labels, annotations=_by_key(annotations))
    return Resource(kind="Pod", metadata=metadata, spec=spec)


def a_template(labels: dict[str, str] | None = None, **annotations: str) -> Resource:
    template = PodTemplate(
        metadata=ObjectMeta(labels=labels, annotations=_by_key(annotations)), spec=Spec()
    )
    return Resource(kind="Deployment", metadata=ObjectMeta(name="d"), spec=Spec(template=template))


def with_agent(hint: str, *, port: int = 8080, mount: str = "/own", **spec: Any) -> Resource:
    """Return a pod that asks for the agent, with one container."""
    ports, mounts = (
        (ContainerPort(containerPort=port),),
        (VolumeMount(name="own", mountPath=mount),),
    )
    main = Container(name="main", ports=ports, volumeMounts=mounts)
    return a_pod(
        spec=Spec(priority=500, containers=(main,), **spec), agent="enabled", checkpoint_hint=hint
    )


def a_job_that_ends(how: str) -> Resource:
    """Return a Job that is asked by annotation, and whose shell ends so on SIGTERM."""
    main = Container(name="main", command=("sh", "-c", f"trap '{how}' TERM; train & wait"))
    metadata = ObjectMeta(annotations={keys.CHECKPOINT_HINT: "annotation:"})
    template = PodTemplate(metadata=metadata, spec=Spec(containers=(main,)))
    return Resource(kind="Job", metadata=ObjectMeta(name="j"), spec=Spec(template=template))


def a_spec() -> Spec:
    return Spec(priority=500, containers=(Container(name="main"),))


def a_hinted_template() -> Resource:
    """Return a workload whose hint goes to port 9000, and which declares port 8080."""
    listening = Container(name="main", ports=(ContainerPort(containerPort=8080),))
    annotations = {keys.CHECKPOINT_HINT: "http://:9000/save"}
    template = PodTemplate(
        metadata=ObjectMeta(annotations=annotations), spec=Spec(containers=(listening,))
    )
    return Resource(kind="Deployment", metadata=ObjectMeta(name="d"), spec=Spec(template=template))


def labelled(key: str) -> Resource:
    return a_pod({key: "3"})


def a_priority_class(name: str = "training", value: int = 1000, **annotations: str) -> Resource:
    return Resource(
        kind="PriorityClass",
        metadata=ObjectMeta(name=name, annotations=_by_key(annotations)),
        value=value,
    )


def a_namespace(labels: dict[str, str] | None = None, **annotations: str) -> Resource:
    metadata = ObjectMeta(name="team-a", labels=labels, annotations=_by_key(annotations))
    return Resource(kind="Namespace", metadata=metadata)


def a_job(gpus: str, preemptible: str) -> Resource:
    labels = {keys.QUOTA_NAME: "gpu", keys.PREEMPTIBLE: preemptible}
    container = Container(resources=ResourceRequirements(requests={"nvidia.com/gpu": gpus}))
    template = PodTemplate(metadata=ObjectMeta(labels=labels), spec=Spec(containers=(container,)))
    return Resource(kind="Job", metadata=ObjectMeta(name="j"), spec=Spec(template=template))


def a_pod_of_job(gpus: str) -> Resource:
    pod = builders.a_pod().asking(**{"nvidia.com/gpu": gpus}).in_gang("job1")
    return pod.labelled(keys.QUOTA_NAME, "gpu").labelled(keys.PREEMPTIBLE, "false").build()


def a_quota(least: dict[str, str], most: dict[str, str]) -> Resource:
    return Resource(
        kind="ElasticQuota", metadata=ObjectMeta(name="gpu"), spec=Spec(min=least, max=most)
    )


def a_borrower() -> Resource:
    return builders.a_pod().labelled(keys.PREEMPTIBLE, "false").on_nodes_of("lender").build()


def a_job_set(*classes: str) -> Resource:
    made = (
        (
            f"spec.replicatedJobs[{index}].template.spec.template.",
            PodTemplate(metadata=in_class(value).metadata),
        )
        for index, value in enumerate(classes)
    )
    return TemplatedResource(kind=CUSTOM, metadata=ObjectMeta(name="js"), templates=tuple(made))


def a_stating_job_set(mode: str) -> Resource:
    metadata = ObjectMeta(name="js", annotations={keys.DISRUPTION_MODE: mode})
    kind = ("jobset.x-k8s.io", "JobSet")
    return TemplatedResource(kind=CUSTOM, metadata=metadata, upstream_kind=kind)


def a_workload(defence: str, *groups: str) -> Resource:
    return builders.a_workload().with_templates(*groups).defended_as(defence).build()


def in_class(value: str, **annotations: str) -> Resource:
    return a_pod({keys.PREEMPTION_CLASS: value}, **annotations)


def in_priority_class(value: str, name: str) -> Resource:
    """Return a workload whose template states a class and a PriorityClass."""
    return builders.a_pod().in_class(value).in_priority_class(name).in_template_of("Deployment")


def _by_key(annotations: dict[str, str]) -> dict[str, str]:
    """Return annotations by key; tests name them as `keys` does, in lower case."""
    return {
        getattr(keys, name.upper(), None) or _TOLERATIONS[name]: text
        for name, text in annotations.items()
    }


_TOLERATIONS = {
    "minimum": keys.TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY,
    "seconds": keys.TOLERATION_PREFIX + keys.TOLERATION_SECONDS,
    "old_seconds": keys.OLD_TOLERATION_PREFIX + keys.TOLERATION_SECONDS,
}
REFUSING_LOANS = PolicySettings(non_preemptible_on_borrowed_nodes="refuse")
LIFTING_NONE_HERE = PolicySettings(
    max_preemption_priority_lift=9000, liftable_priority_classes=frozenset({"batch"})
)
FACTS = Facts(
    priority_classes={
        "low": a_priority_class("low", 100),
        "high": a_priority_class("high", 9000),
        "plain": a_priority_class("plain", 500),
    }
)
ALL_CLASSES = namespace.read_leniently({}, {keys.ALLOWED_PREEMPTION_CLASSES: "0-10"})
LISTED = namespace.read_leniently({}, {keys.ALLOWED_PREEMPTION_CLASSES: "0-6,8"})
SENSITIVE = namespace.read_leniently({}, {keys.WORKLOAD_TYPE: "sensitive"})
IN_A_GANG = replace(
    FACTS,
    gang_traits=GangTraits(
        preemptible=True,
        can_preempt=True,
        preemption_class=4,
        priority=500,
        preemption_priority=500,
        min_available=None,
        size=None,
    ),
)
UNREACHABLE_IS_REFUSED = Facts(
    settings=PolicySettings(unreachable_min_available=policy_settings.REFUSE)
)

CLASSES_GIVE_PRIORITIES = Facts(
    settings=PolicySettings(class_priorities=policy_settings.REFUSE),
    priority_classes={**builders.class_priorities(), "plain": a_priority_class("plain", 500)},
)

LACKING = Facts(missing_permissions=frozenset({CLAIM_NON_PREEMPTIBLE}))
FULL = Facts(
    quotas=Quotas(
        [
            quota.read_leniently(
                ObjectMeta(
                    name="gpu",
                    namespace="admin",
                    annotations={keys.NON_PREEMPTIBLE_USED: '{"nvidia.com/gpu":"4"}'},
                ),
                {"nvidia.com/gpu": "8"},
                {"nvidia.com/gpu": "16"},
                {"nvidia.com/gpu": "9"},
            )
        ]
    )
)


OTHERS = replace(
    FULL, job_requests=JobRequests(requested=quota.read_amounts({"nvidia.com/gpu": "3"}))
)
"""Other pods of the job request as much."""


@dataclass(frozen=True)
class Case:
    """An object, and what it was before."""

    new: Resource
    old: Resource | None = None
    facts: Facts = field(default=FACTS)


CASES = {
    "a class above 10": Case(in_class("11")),
    "a class that is a word": Case(in_class("high")),
    "a class above 10 in a template": Case(a_template({keys.PREEMPTION_CLASS: "11"})),
    "a class that the namespace does not allow": Case(in_class("8")),
    "class 10 where the list lacks it": Case(in_class("10"), facts=Facts(namespace=LISTED)),
    "class 10, offline": Case(in_class("10"), facts=Facts(is_offline=True)),
    "class 10 in a template that the rights policies do not find": Case(
        builders.a_pod().in_class(10).with_hint().in_listed_kind(),
        facts=Facts(missing_permissions=frozenset({CLAIM_SENSITIVE})),
    ),
    "another class than 10 where workloads are sensitive": Case(
        in_class("3"), facts=Facts(namespace=SENSITIVE)
    ),
    "a class raised": Case(in_class("5"), in_class("2")),
    "a long value is shortened and stays one line": Case(in_class("x\n" + "y" * 100)),
    "preemptible that is no boolean": Case(a_pod({keys.PREEMPTIBLE: "maybe"})),
    "can-preempt that is no boolean": Case(a_pod({keys.CAN_PREEMPT: "True"})),
    "preemptible taken back": Case(
        a_pod({keys.PREEMPTIBLE: "false"}), a_pod({keys.PREEMPTIBLE: "true"})
    ),
    "not preemptible, without a quota": Case(a_pod({keys.PREEMPTIBLE: "false"}), facts=LACKING),
    "not preemptible, without a quota, offline": Case(
        a_template({keys.PREEMPTIBLE: "false"}), facts=Facts(is_offline=True)
    ),
    "a job that does not fit into its quota": Case(a_job("12", "true"), facts=FULL),
    "a non-preemptible job that does not": Case(a_job("5", "false"), facts=FULL),
    "a job that does not fit, where that is refused": Case(
        a_job("12", "true"), facts=replace(FULL, settings=PolicySettings(quota_fit="refuse"))
    ),
    "a bare pod whose job does not fit": Case(a_pod_of_job("3"), facts=OTHERS),
    "a bare pod whose job does not fit, where that is refused": Case(
        a_pod_of_job("3"), facts=replace(OTHERS, settings=PolicySettings(quota_fit="refuse"))
    ),
    "can-preempt that cannot": Case(
        a_pod({keys.CAN_PREEMPT: "true"}, Spec(preemptionPolicy="Never"))
    ),
    "an unknown strategy": Case(a_pod(checkpoint="sometimes")),
    "a hint with a host": Case(a_pod(checkpoint_hint="http://example.com:80/x")),
    "a timeout that is no duration": Case(a_pod(checkpoint_timeout="soon")),
    "a timeout of nothing": Case(a_pod(checkpoint_timeout="0s")),
    "a timeout above the ceiling": Case(a_pod(checkpoint_timeout="2h")),
    "a deferral above the limit": Case(a_pod(max_deferral="1h")),
    "an estimate that is no duration": Case(a_pod(estimated_checkpoint_time="5")),
    "an unknown disruption mode": Case(a_pod({keys.POD_GROUP: "train"}, disruption_mode="single")),
    "a disruption mode without a gang": Case(a_pod(disruption_mode="gang")),
    "a disruption mode beside the template": Case(
        replace(
            a_template(),
            metadata=ObjectMeta(name="d", annotations={keys.DISRUPTION_MODE: "pod"}),
        )
    ),
    "an unknown disruption mode of a JobSet": Case(a_stating_job_set("each")),
    "a disruption mode of a JobSet that changes": Case(
        a_stating_job_set("pod"), old=a_stating_job_set("gang")
    ),
    "an unknown requeueing": Case(a_pod(requeue="maybe")),
    "variables that are neither wanted nor not": Case(a_pod(requeue_env="yes")),
    "a cleaner that is no finalizer": Case(a_pod(cleaners_before="release")),
    "a hint that is never used": Case(a_pod(checkpoint="none", checkpoint_hint="http://:80/x")),
    "a hint to a port that no container declares": Case(
        a_pod(spec=a_spec(), checkpoint_hint="grpc://:9000")
    ),
    "a hint to a container that is not there": Case(
        a_pod(spec=a_spec(), checkpoint_hint="signal://USR1?container=x")
    ),
    "a hint to a file that no volume holds": Case(
        a_pod(spec=a_spec(), checkpoint_hint="file:///dev/shm/x")
    ),
    "a hint to a port in a template": Case(a_hinted_template()),
    "a job that fails when it is preempted, or has finished when it has not": Case(
        a_job_that_ends("exit 0")
    ),
    "an agent that is neither wanted nor not": Case(a_pod(agent="yes")),
    "an agent without a hint that it carries": Case(a_pod(agent="enabled")),
    "an agent on the node's network, of a system other than Linux": Case(
        with_agent("file:///run/app/x", hostNetwork=True, os=NameOnly(name="windows"))
    ),
    "an agent whose port and volume are taken": Case(
        with_agent(
            "file:///run/app/x",
            port=10473,
            volumes=(Volume(name="reprieve-agent", emptyDir=EmptyDir()),),
        )
    ),
    "an agent that would hide a folder of the system": Case(with_agent("file:///dev/shm/x")),
    "an agent that cannot write where the file is": Case(
        with_agent("file:///data/x", mount="/data")
    ),
    "an agent that can signal no process": Case(
        with_agent("signal://USR1?container=main", mount="/run/reprieve")
    ),
    "an agent that would have to signal root": Case(
        with_agent(
            "signal://USR1?container=main",
            shareProcessNamespace=True,
            securityContext=SecurityContext(runAsUser=0),
        )
    ),
    "an agent that would have to signal a sidecar": Case(
        with_agent(
            "signal://USR1?container=side",
            shareProcessNamespace=True,
            initContainers=(Container(name="side", restartPolicy="Always"),),
        )
    ),
    "a save that takes longer than its timeout": Case(
        a_pod(checkpoint="auto", checkpoint_timeout="1m", estimated_checkpoint_time="90s")
    ),
    "a save that takes longer than from SIGTERM to SIGKILL": Case(
        a_pod(estimated_checkpoint_time="90s")
    ),
    "the same where the admin's cap is shorter than the pod's own": Case(
        a_pod(
            spec=Spec(priority=500, terminationGracePeriodSeconds=120),
            estimated_checkpoint_time="90s",
        )
    ),
    "class 7 without a checkpoint": Case(in_class("7"), facts=Facts(namespace=ALL_CLASSES)),
    "a mark that is no JSON": Case(a_pod(koordinator_soft_eviction="now")),
    "a mark of another form": Case(a_pod(koordinator_soft_eviction="[]")),
    "a mark whose initiator is not a string": Case(
        a_pod(koordinator_soft_eviction='{"initiator":7}')
    ),
    "a mark with options of another form": Case(
        a_pod(koordinator_soft_eviction='{"deleteOptions":"now"}')
    ),
    "a mark with an unreadable time": Case(a_pod(koordinator_soft_eviction='{"timestamp":"soon"}')),
    "a mark with an unreadable grace": Case(
        a_pod(koordinator_soft_eviction='{"deleteOptions":{"gracePeriodSeconds":-1}}')
    ),
    "a mark in a template": Case(
        a_template({keys.SOFT_EVICTION: "requested"}, koordinator_soft_eviction="true")
    ),
    "state that only Reprieve writes, in a template": Case(
        a_template(eviction="{}", checkpoint_request="{}")
    ),
    "a phase on a pod, offline": Case(
        a_pod({keys.SOFT_EVICTION: "saved"}), facts=Facts(is_offline=True)
    ),
    "a release from the gang gate in a template": Case(
        builders.a_pod().labelled(keys.GANG_GATE_LABEL, "released").in_template_of("Deployment")
    ),
    "a defence that is not there": Case(a_pod(preemption_priority_class="none")),
    "a defence without a name": Case(a_pod(preemption_priority_class="")),
    "a defence that is not there yet": Case(a_template(preemption_priority_class="none")),
    "a PriorityClass that is not there yet": Case(
        builders.a_pod().in_priority_class("gold").defended_as("high").in_template_of("Deployment")
    ),
    "a defence below the priority": Case(a_pod(preemption_priority_class="low")),
    "a defence above what is given": Case(a_pod(preemption_priority_class="high")),
    "a defence changed": Case(a_pod(preemption_priority_class="plain"), a_pod()),
    "a priority that does not fit the class": Case(
        in_priority_class("6", "plain"), facts=CLASSES_GIVE_PRIORITIES
    ),
    "the same where that is only warned of": Case(
        in_priority_class("6", "plain"),
        facts=replace(
            CLASSES_GIVE_PRIORITIES, settings=PolicySettings(class_priorities=policy_settings.WARN)
        ),
    ),
    "a class without its PriorityClass": Case(
        a_template({keys.PREEMPTION_CLASS: "4"}),
        facts=replace(CLASSES_GIVE_PRIORITIES, priority_classes={}),
    ),
    "a toleration of an hour in words": Case(a_priority_class(seconds="1h")),
    "a toleration above 64 bits": Case(a_priority_class(seconds="9223372036854775808")),
    "a toleration that overflows upstream": Case(a_priority_class(seconds="9223372037")),
    "a minimum that is no number": Case(a_priority_class(minimum="1e3", seconds="60")),
    "a minimum below the value": Case(a_priority_class(minimum="10", seconds="60")),
    "a minimum that tolerates no preemptor": Case(a_priority_class(minimum="1001", seconds="60")),
    "both prefixes, differing": Case(a_priority_class(seconds="60", old_seconds="30")),
    "the older prefix, unreadable": Case(a_priority_class(old_seconds="soon")),
    "a toleration on a pod": Case(a_pod(seconds="60")),
    "a toleration in a template": Case(a_template(old_seconds="60")),
    "a class defended below its value": Case(a_priority_class(preemption_priority_class="low")),
    "a class defended by one that is not there": Case(
        a_priority_class(preemption_priority_class="none")
    ),
    "a default class above 10": Case(a_priority_class(default_preemption_class="11")),
    "an ElasticQuota that promises too much": Case(a_quota({"cpu": "8"}, {"cpu": "4"})),
    "an ElasticQuota below nothing": Case(a_quota({"cpu": "-1"}, {})),
    "an ElasticQuota of no quantity": Case(a_quota({}, {"memory": "1GB"})),
    "an unknown workload type": Case(a_namespace(workload_type="wrong")),
    "an unknown enforcement": Case(a_namespace({keys.ENFORCEMENT: "maybe"})),
    "allowed classes that are no ranges": Case(a_namespace(allowed_preemption_classes="3-1")),
    "a default class that is not allowed": Case(
        a_namespace(allowed_preemption_classes="0-3", default_preemption_class="5")
    ),
    "a default class in a sensitive namespace": Case(
        a_namespace(workload_type="sensitive", default_preemption_class="5")
    ),
    "non-preemptible on another namespace's nodes": Case(a_borrower()),
    "the same where that is refused": Case(a_borrower(), facts=Facts(settings=REFUSING_LOANS)),
    "a workload defended below one of its groups": Case(a_workload("plain", "low", "high")),
    "a group of a workload that is not there yet": Case(a_workload("plain", "gold")),
    "a defence above what its PriorityClass may have": Case(
        a_pod(preemption_priority_class="high"), facts=replace(FACTS, settings=LIFTING_NONE_HERE)
    ),
    "two settings that cannot be read": Case(a_policy_map(ceiling="0s", extensionPercent="half")),
    "two gangs": Case(a_pod({keys.POD_GROUP: "a"}, koordinator_gang="b")),
    "a gang whose name is none": Case(a_pod(volcano_group="a b")),
    "a gang under an old key": Case(a_pod({keys.OLD_POD_GROUP: "a", keys.OLD_MIN_AVAILABLE: "2"})),
    "a gang under the document's key, in a template": Case(a_template({keys.DRAFT_POD_GROUP: "a"})),
    "a gang's minimum that is no number": Case(
        a_pod({keys.OLD_POD_GROUP: "a", keys.OLD_MIN_AVAILABLE: "all"})
    ),
    "a minimum of 0": Case(a_pod(koordinator_gang="a", koordinator_min_available="0")),
    "a minimum of no gang": Case(a_pod({keys.DRAFT_MIN_AVAILABLE: "2"})),
    "a minimum above the total": Case(
        a_pod(koordinator_gang="a", koordinator_min_available="3", koordinator_total="2")
    ),
    "a minimum below the total": Case(
        a_pod(koordinator_gang="a", koordinator_min_available="1", koordinator_total="2")
    ),
    "two minimums": Case(
        a_pod({keys.OLD_POD_GROUP: "a", keys.OLD_MIN_AVAILABLE: "2"}, koordinator_min_available="3")
    ),
    "a minimum that is never reached": Case(
        a_template(koordinator_gang="a", koordinator_min_available="3")
    ),
    "a minimum that is never reached, where that is refused": Case(
        a_template(koordinator_gang="a", koordinator_min_available="3"),
        facts=UNREACHABLE_IS_REFUSED,
    ),
    "a mode of a gang that is unknown": Case(
        a_pod(koordinator_gang="a", koordinator_mode="strict")
    ),
    "a class that the rest of the gang does not have": Case(
        in_class("5", koordinator_gang="a"), facts=IN_A_GANG
    ),
    "a template of a gang that changes": Case(
        a_template({keys.PREEMPTION_CLASS: "3", keys.POD_GROUP: "a"}),
        a_template({keys.PREEMPTION_CLASS: "4", keys.POD_GROUP: "a"}),
    ),
    "templates of a JobSet that are not alike": Case(a_job_set("4", "5")),
    "everything else than the rest of the gang": Case(
        a_pod(
            {keys.PREEMPTIBLE: "false", keys.CAN_PREEMPT: "false"},
            koordinator_gang="a",
            koordinator_min_available="2",
            koordinator_total="2",
        ),
        facts=replace(
            IN_A_GANG,
            gang_traits=IN_A_GANG.gang_traits
            and IN_A_GANG.gang_traits._replace(priority=0, min_available=None),
        ),
    ),
    "another defence than the rest of the gang": Case(
        a_pod(koordinator_gang="a", preemption_priority_class="plain"),
        facts=replace(
            IN_A_GANG,
            gang_traits=IN_A_GANG.gang_traits
            and IN_A_GANG.gang_traits._replace(preemption_priority=900),
        ),
    ),
    "no minimum where the rest of the gang has one": Case(
        a_pod(koordinator_gang="a"),
        facts=replace(
            IN_A_GANG,
            gang_traits=IN_A_GANG.gang_traits and IN_A_GANG.gang_traits._replace(min_available=2),
        ),
    ),
    "a key of ours that is misspelled": Case(labelled("reprieve.dev/premption-class")),
    "a key of ours that resembles none": Case(labelled("reprieve.dev/colour")),
    "a misspelled key, where that is refused": Case(
        labelled("reprieve.dev/premption-class"),
        facts=Facts(settings=PolicySettings(unknown_keys="refuse")),
    ),
    "a class as an annotation": Case(a_pod(preemption_class="3")),
    "a checkpoint key as a label, where that is refused": Case(
        labelled(keys.CHECKPOINT), facts=Facts(settings=PolicySettings(unknown_keys="refuse"))
    ),
    "a class in a workload's own metadata": Case(
        replace(a_template(), metadata=ObjectMeta(name="d", labels={keys.PREEMPTION_CLASS: "3"}))
    ),
    "an upstream key that is misspelled": Case(
        builders.a_priority_class()
        .annotated(keys.TOLERATION_PREFIX + "minimum-preemptible-priority", "9")
        .build()
    ),
    "keys of a Namespace that are misspelled": Case(
        builders.a_namespace()
        .annotated("reprieve.dev/default-class", "3")
        .labelled("reprieve.dev/enforcment", "warn")
        .build()
    ),
    "a mark that means nothing": Case(a_pod({keys.SOFT_EVICTION: "true"})),
    "three mistakes": Case(
        a_pod({keys.PREEMPTION_CLASS: "11", keys.PREEMPTIBLE: "x"}, checkpoint_timeout="soon")
    ),
}

CONFIG_MAPS = {
    "a setting that does not exist": {"colour": "red"},
    "a setting that is nearly one": {"checkpointTimout": "5m"},
    "a scheduler that is no user": {"schedulers": "kube-scheduler"},
    "a number out of range": {"extensionPercent": "101"},
    "a time that is too long": {"ceiling": "200h"},
    "a switch that is no boolean": {"disableDefaultPreemptiable": "yes"},
    "a default class that namespaces must allow": {"defaultPreemptionClass": "7"},
    "a time above the ceiling": {"ceiling": "5m", "checkpointTimeout": "6m"},
    "names without a lift": {"liftablePriorityClasses": "training"},
    "names that are none": {"liftablePriorityClasses": "Training"},
    "a kind without a path": {"templateKinds": "example.com/Sweep"},
    "a kind that is read without being listed": {"templateKinds": "apps/Deployment: spec.template"},
    "a word that is none of the three": {"classPriorities": "true"},
    "a word that is none of the two": {"nonPreemptibleOnBorrowedNodes": "maybe"},
}


FORMS = {
    "a slip in a field's name": {"kind": "Pod", "metadata": {"annotation": {}}},
    "a class that is a number, in a template": {
        "kind": "Deployment",
        "spec": {"template": {"metadata": {"labels": {keys.PREEMPTION_CLASS: 4}}}},
    },
    "an annotation that is a list": {
        "kind": "Pod",
        "metadata": {"annotations": {keys.CHECKPOINT: ["auto"]}},
    },
    "labels that are a text": {"kind": "Pod", "metadata": {"labels": "none"}},
}


def test_every_text_is_as_pinned():
    text = "".join(f"{line}\n" for line in _lines())
    if not GOLDEN.exists():
        GOLDEN.write_text(text)
        raise AssertionError(f"{GOLDEN} was written: read it, and run this test again")

    assert text == GOLDEN.read_text()


def test_every_rule_has_a_text():
    messages = {rule for case in CASES.values() for rule in _violated_rules(case)}

    assert messages == {rule.id for rule in RULES}


def test_texts_are_readable_by_users():
    for line in _lines():
        assert not any(
            word in line for word in ("Traceback", "None", "dict", "Error", "reprieve_policy")
        )
        assert not line.endswith(".")


def test_warnings_fit_in_a_line_of_kubectl():
    texts = [text for case in CASES.values() for text in _verdict(case).warnings]
    assert all(len(text) < 120 for text in texts)


def _lines() -> list[str]:
    lines = []
    for sentence, case in CASES.items():
        verdict = _verdict(case)
        messages = [f"{verdict.status.value}: {verdict.message}"] if verdict.violations else []
        rules = ", ".join(sorted(_violated_rules(case)))
        lines += [
            f"# {case.new.kind}: {sentence} [{rules}]",
            *messages,
            *(f"warning: {text}" for text in verdict.warnings),
        ]
    for sentence, data in CONFIG_MAPS.items():
        parsed = policy_settings.parse(data)
        assert not isinstance(parsed, PolicySettings)
        lines += [f"# ConfigMap: {sentence} [policy-config]", *map(str, parsed)]
    for sentence, document in FORMS.items():
        found = manifest_form.check_form(document, ["spec.template"])
        lines += [f"# {document['kind']}: {sentence} [{manifest_form.RULE}]", *map(str, found)]
    return lines


def _violated_rules(case: Case) -> set[str]:
    assert not _verdict(case).is_empty
    rules = (rule for rule in RULES if case.new.kind in rule.kinds)
    return {rule.id for rule in rules if not rule.check(case.new, case.old, case.facts).is_empty}


def _verdict(case: Case) -> Verdict:
    return decide_admission(case.new, case.old, case.facts)
