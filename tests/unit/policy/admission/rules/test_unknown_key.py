"""Misspelled and misplaced keys are warned of or refused; keys of other projects never are."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission import key_places, misspelled_keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.admission.rules import unknown_key
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.kinds import CUSTOM
from reprieve_policy.kube.objects import (
    JobTemplate,
    ObjectMeta,
    PodTemplate,
    Resource,
    Spec,
    TemplatedResource,
)
from reprieve_testing.objects.builders import (
    a_namespace,
    a_pod,
    a_pod_group,
    a_priority_class,
    a_workload,
)

REFUSING = Facts(settings=PolicySettings(unknown_keys="refuse"))
OURS = keys.PREFIX
MINIMUM = keys.TOLERATION_PREFIX + "minimum-preemptible-priority"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object, and what the rule warns of."""

    resource: Resource
    warnings: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)


def with_own(resource: Resource, **metadata: dict[str, str]) -> Resource:
    """Return the object with labels or annotations of its own, beside those of its template."""
    return replace(resource, metadata=replace(resource.metadata, **metadata))  # type: ignore[arg-type]  # labels or annotations only


def labelled(key: str) -> Resource:
    return a_pod().labelled(key, "1").build()


def annotated(key: str) -> Resource:
    return a_pod().annotated(key, "1").build()


def a_cron_job(**metadata: dict[str, str]) -> Resource:
    """Return a CronJob whose Jobs have this metadata of their own."""
    made = a_pod().in_class(3).in_template_of("CronJob")
    assert made.spec is not None
    assert made.spec.jobTemplate is not None
    job = JobTemplate(metadata=ObjectMeta(**metadata), spec=made.spec.jobTemplate.spec)  # type: ignore[arg-type]  # labels or annotations only
    return replace(made, spec=Spec(jobTemplate=job))


def label(key: str, prefix: str = "") -> str:
    return f"{prefix}metadata.labels[{key}]"


def annotation(key: str, prefix: str = "") -> str:
    return f"{prefix}metadata.annotations[{key}]"


def meant(name: str) -> str:
    return f'unknown; did you mean "{name}"?'


CASES = {
    "a pod without a key is right": Case(resource=a_pod().build()),
    "a letter is missing": Case(
        resource=annotated(f"{OURS}checkpoint-hnt"),
        warnings=(f"{annotation(f'{OURS}checkpoint-hnt')}: {meant('checkpoint-hint')}",),
    ),
    "a letter is missing in a label": Case(
        resource=labelled(f"{OURS}premption-class"),
        warnings=(f"{label(f'{OURS}premption-class')}: {meant('preemption-class')}",),
    ),
    "an underscore, as in other languages": Case(
        resource=labelled(f"{OURS}preemption_class"),
        warnings=(f"{label(f'{OURS}preemption_class')}: {meant('preemption-class')}",),
    ),
    "a capital letter": Case(
        resource=labelled(f"{OURS}Preemption-Class"),
        warnings=(f"{label(f'{OURS}Preemption-Class')}: {meant('preemption-class')}",),
    ),
    "a key of ours that resembles none": Case(
        resource=labelled(f"{OURS}colour"),
        warnings=(f"{label(f'{OURS}colour')}: unknown; Reprieve has no such key",),
    ),
    "a class as an annotation": Case(
        resource=annotated(keys.PREEMPTION_CLASS),
        warnings=(f"{annotation(keys.PREEMPTION_CLASS)}: unread here; it is a label",),
    ),
    "a checkpoint key as a label": Case(
        resource=labelled(keys.CHECKPOINT),
        warnings=(f"{label(keys.CHECKPOINT)}: unread here; it is an annotation",),
    ),
    "a key of Namespaces on a pod": Case(
        resource=labelled(keys.ENFORCEMENT),
        warnings=(f"{label(keys.ENFORCEMENT)}: unread here; it is a label of Namespaces",),
    ),
    "a key of PriorityClasses and Namespaces on a pod": Case(
        resource=annotated(keys.DEFAULT_PREEMPTION_CLASS),
        warnings=(
            # The whole key would not fit into a warning.
            (
                "metadata.annotations[*/default-preemption-class]: unread here; "
                "it is an annotation of PriorityClasses and Namespaces"
            ),
        ),
    ),
    "a key that Reprieve writes to workloads, on a pod": Case(
        resource=labelled(keys.LEDGER),
        warnings=(f"{label(keys.LEDGER)}: unread here; it is a label of workloads",),
    ),
    "a finalizer as a label": Case(
        resource=labelled(keys.CLEANUP_FINALIZER),
        warnings=(f"{label(keys.CLEANUP_FINALIZER)}: unread here; it is a finalizer",),
    ),
    "a slip in a template": Case(
        resource=a_pod().annotated(f"{OURS}checkpoint-hnt", "x").in_template_of("Deployment"),
        warnings=(
            f"{annotation(f'{OURS}checkpoint-hnt', 'spec.template.')}: {meant('checkpoint-hint')}",
        ),
    ),
    "a slip in the template of another project's kind": Case(
        resource=a_pod().labelled(f"{OURS}premption-class", "3").in_listed_kind(),
        warnings=(
            (
                f"{label(f'{OURS}premption-class', 'spec.jobs[0].template.')}: "
                f"{meant('preemption-class')}"
            ),
        ),
    ),
    "a slip in our prefix": Case(
        resource=labelled("reprive.dev/preemption-class"),
        warnings=(
            f"{label('reprive.dev/preemption-class')}: {meant('reprieve.dev/preemption-class')}",
        ),
    ),
    "a class on a Deployment whose template has none": Case(
        resource=with_own(
            a_pod().with_hint().in_template_of("Deployment"), labels={keys.PREEMPTION_CLASS: "3"}
        ),
        warnings=(
            f"{label(keys.PREEMPTION_CLASS)}: unread here; it is a label of pods and templates",
        ),
    ),
    "a hint on a Job, whose template has none": Case(
        resource=with_own(
            a_pod().in_template_of("Job"), annotations={keys.CHECKPOINT_HINT: "annotation:"}
        ),
        warnings=(
            (
                f"{annotation(keys.CHECKPOINT_HINT)}: unread here; "
                "it is an annotation of pods and templates"
            ),
        ),
    ),
    "a slip on a Deployment itself": Case(
        resource=with_own(
            a_pod().in_template_of("Deployment"), labels={f"{OURS}premption-class": "3"}
        ),
        warnings=(f"{label(f'{OURS}premption-class')}: {meant('preemption-class')}",),
    ),
    "labels that a tool copies to the Deployment as well": Case(
        resource=with_own(
            a_pod().in_class(3).in_template_of("Deployment"), labels={keys.PREEMPTION_CLASS: "3"}
        )
    ),
    "what Reprieve writes to a workload": Case(
        resource=with_own(
            a_pod().in_class(3).in_template_of("Job"),
            labels={keys.LEDGER: "true", keys.SUSPENDED: "true"},
            annotations={
                keys.LEDGER: "{}",
                keys.SUSPENDED: "x",
                keys.LAST_CHECKPOINT_AT: "2026-11-21T12:00:00Z",
            },
        )
    ),
    "a class for the Jobs of a CronJob, whose template has it": Case(
        resource=a_cron_job(labels={keys.PREEMPTION_CLASS: "3"})
    ),
    "a checkpoint for the Jobs of a CronJob, whose template has none": Case(
        resource=a_cron_job(annotations={keys.CHECKPOINT: "none"}),
        warnings=(
            (
                f"{annotation(keys.CHECKPOINT, 'spec.jobTemplate.')}: unread here; "
                "it is an annotation of pods and templates"
            ),
        ),
    ),
    "an object without a spec": Case(resource=Resource(kind="Deployment")),
    "upstream's minimum on a PriorityClass": Case(
        resource=a_priority_class().annotated(MINIMUM, "1000").build(),
        warnings=(
            (
                "metadata.annotations[*/minimum-preemptible-priority]: "
                f"{meant('minimum-preemptable-priority')}"
            ),
        ),
    ),
    "upstream's seconds on a PriorityClass": Case(
        resource=a_priority_class()
        .annotated(f"{keys.TOLERATION_PREFIX}toleration-second", "60")
        .build(),
        warnings=(f"metadata.annotations[*/toleration-second]: {meant('toleration-seconds')}",),
    ),
    "keys of a Namespace": Case(
        resource=a_namespace()
        .annotated(f"{OURS}default-class", "3")
        .labelled(f"{OURS}enforcment", "warn")
        .build(),
        warnings=(
            f"{label(f'{OURS}enforcment')}: {meant('enforcement')}",
            f"{annotation(f'{OURS}default-class')}: {meant('default-preemption-class')}",
        ),
    ),
    "a PodGroup's defence as a label": Case(
        resource=a_pod_group().labelled(keys.PREEMPTION_PRIORITY_CLASS, "gold").build(),
        warnings=(f"{label(keys.PREEMPTION_PRIORITY_CLASS)}: unread here; it is an annotation",),
    ),
    "a class on a native Workload": Case(
        resource=a_workload().labelled(keys.PREEMPTION_CLASS, "3").build(),
        warnings=(
            f"{label(keys.PREEMPTION_CLASS)}: unread here; it is a label of pods and templates",
        ),
    ),
    "a quota's namespaces": Case(
        resource=Resource(
            kind="ElasticQuota",
            metadata=ObjectMeta(
                annotations={"quota.scheduling.koordinator.sh/namespace": "[]"}, labels=None
            ),
        ),
        warnings=(
            f"{annotation('quota.scheduling.koordinator.sh/namespace')}: {meant('namespaces')}",
        ),
    ),
    **{
        f"upstream's {meant_key}": Case(
            resource=labelled(written),
            warnings=(f"{label(written)}: {meant(meant_key.rpartition('/')[2])}",),
        )
        for written, meant_key in (
            ("quota.scheduling.koordinator.sh/preemptable", keys.PREEMPTIBLE),
            ("quota.scheduling.koordinator.sh/can-premept", keys.CAN_PREEMPT),
            ("quota.scheduling.koordinator.sh/names", keys.QUOTA_NAME),
            ("scheduling.koordinator.sh/eviction_cost", keys.EVICTION_COST),
            ("gang.scheduling.koordinator.sh/min-avialable", keys.KOORDINATOR_MIN_AVAILABLE),
            ("scheduling.x-k8s.io/podgroup", keys.POD_GROUP),
            ("pod-group.scheduling.sigs.k8s.oi", keys.KOORDINATOR_POD_GROUP),
            ("scheduling.k8s.io/groupname", keys.VOLCANO_GROUP),
            ("kueue.x-k8s.io/pod-group-names", keys.KUEUE_GROUP),
        )
    },
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_mistakes_in_keys_are_warned_of(case: Case) -> None:
    verdict = unknown_key.check(case.resource, None, case.facts)
    assert (verdict.warnings, verdict.violations) == (case.warnings, ())


FOREIGN = (
    # Kubernetes and common tools.
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "pod-template-hash",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
    "scheduling.k8s.io/pod-group",
    "scheduling.k8s.io/workload-name",
    # A name of ours under a prefix that is not nearly ours.
    "example.com/checkpoint",
    "example.com/preemption-class",
    "agent",
    # Volcano.
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "scheduling.volcano.sh/queue-name",
    "scheduling.k8s.io/group-min-member",
    "volcano.sh/job-name",
    "volcano.sh/queue-name",
    "volcano.sh/preemptable",
    "volcano.sh/cooldown-time",
    "volcano.sh/task-spec",
    "volcano.sh/task-index",
    # Kueue.
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/priority-class",
    "kueue.x-k8s.io/managed",
    "kueue.x-k8s.io/podset",
    "kueue.x-k8s.io/workload",
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/pod-group-fast-admission",
    "kueue.x-k8s.io/pod-group-pod-index",
    "kueue.x-k8s.io/pod-group-pod-index-label",
    "kueue.x-k8s.io/pod-suspending-parent",
    "kueue.x-k8s.io/retriable-in-group",
    "kueue.x-k8s.io/role-hash",
    # JobSet and LeaderWorkerSet.
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "jobset.sigs.k8s.io/restart-attempt",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/size",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/group-key",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/leader-name",
    "leaderworkerset.sigs.k8s.io/subgroup-size",
    # Koordinator.
    "koordinator.sh/qosClass",
    "koordinator.sh/priority",
    "scheduling.koordinator.sh/soft-eviction",
    "scheduling.koordinator.sh/eviction-cost",
    "scheduling.koordinator.sh/resource-status",
    "scheduling.koordinator.sh/device-allocated",
    "scheduling.koordinator.sh/preemptible",
    "quota.scheduling.koordinator.sh/name",
    "quota.scheduling.koordinator.sh/parent",
    "quota.scheduling.koordinator.sh/is-parent",
    "quota.scheduling.koordinator.sh/is-root",
    "quota.scheduling.koordinator.sh/tree-id",
    "quota.scheduling.koordinator.sh/profile",
    "quota.scheduling.koordinator.sh/allow-lent-resource",
    "quota.scheduling.koordinator.sh/shared-weight",
    "quota.scheduling.koordinator.sh/runtime",
    "quota.scheduling.koordinator.sh/request",
    "quota.scheduling.koordinator.sh/child-request",
    "quota.scheduling.koordinator.sh/non-preemptible-request",
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/waiting-time",
    "gang.scheduling.koordinator.sh/groups",
    "gang.scheduling.koordinator.sh/match-policy",
    "gang.scheduling.koordinator.sh/timeout",
    "gang.scheduling.koordinator.sh/network-topology-index",
    # scheduler-plugins.
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available",
    "preemption-toleration.scheduling.x-k8s.io/toleration-seconds",
    "preemption-toleration.scheduling.sigs.k8s.io/minimum-preemptable-priority",
)


@pytest.mark.parametrize("key", FOREIGN)
def test_a_key_of_another_project_is_never_warned_of(key: str) -> None:
    for resource in (
        a_pod().labelled(key, "x").annotated(key, "x"),
        a_priority_class().labelled(key, "x").annotated(key, "x"),
        a_namespace().labelled(key, "x").annotated(key, "x"),
    ):
        assert unknown_key.check(resource.build(), None, REFUSING).is_empty
    workload = a_pod().labelled(key, "x").annotated(key, "x").in_template_of("Deployment")
    own = with_own(a_pod().in_template_of("Job"), labels={key: "x"}, annotations={key: "x"})
    assert unknown_key.check(workload, None, REFUSING).is_empty
    assert unknown_key.check(own, None, REFUSING).is_empty


def test_where_the_policy_says_so_a_mistake_is_refused_as_a_bad_value() -> None:
    verdict = decide_admission(annotated(f"{OURS}checkpoint-hnt"), None, REFUSING)
    path = annotation(f"{OURS}checkpoint-hnt")
    expected = f'{path}: Unsupported value: "{OURS}checkpoint-hnt": {meant("checkpoint-hint")}'
    assert [str(violation) for violation in verdict.violations] == [expected]
    assert verdict.status == 400


def test_an_update_that_makes_it_no_worse_passes() -> None:
    before = a_pod().annotated(f"{OURS}checkpoint-hnt", "x")
    assert decide_admission(before.in_class(3).build(), before.build(), REFUSING).is_allowed
    worse = before.annotated(f"{OURS}chekpoint", "x").build()
    (violation,) = decide_admission(worse, before.build(), REFUSING).violations
    assert violation.path == annotation(f"{OURS}chekpoint")


def test_of_thousands_of_mistakes_only_some_are_explained() -> None:
    pod = a_pod().build()
    many = {f"{OURS}checkpoint-{number}": "x" for number in range(3000)}
    verdict = unknown_key.check(with_own(pod, annotations=many), None, Facts())
    assert len(verdict.warnings) == unknown_key._MOST


def test_of_many_templates_only_some_mistakes_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key is compared with all that are known: each template may have as many as an object."""
    explained = list[str]()

    def most_similar(key: str, _: object) -> str:
        explained.append(key)
        return ""

    monkeypatch.setattr(misspelled_keys, "most_similar", most_similar)
    many = ObjectMeta(labels={f"{OURS}tniopkcehc-{number}": "" for number in range(20)})
    templates = [(f"spec.tasks[{index}].", PodTemplate(metadata=many)) for index in range(256)]
    job = TemplatedResource(kind=CUSTOM, metadata=ObjectMeta(name="job"), templates=templates)
    unknown_key.check(job, None, Facts())
    assert len(explained) == unknown_key._MOST


def test_of_many_templates_the_keys_are_read_once() -> None:
    """Not once for each key of the object, of which the last template may have all."""
    read = list[int]()

    class Labels(dict[str, str]):
        def __iter__(self) -> Iterator[str]:
            read.append(len(self))
            return super().__iter__()

        def __contains__(self, key: object) -> bool:
            read.append(1)
            return super().__contains__(key)

    same = {f"{OURS}{number:x}": "" for number in range(1000)}
    templates = [
        (f"spec.tasks[{index}].", PodTemplate(metadata=ObjectMeta(labels=Labels(labels))))
        for index, labels in enumerate([{}] * 255 + [same])
    ]
    metadata = ObjectMeta(name="job", labels=same, annotations=same)
    unknown_key.check(
        TemplatedResource(kind=CUSTOM, metadata=metadata, templates=templates), None, Facts()
    )
    assert sum(read) < 4 * len(same)


def test_a_very_long_key_in_a_file_is_not_compared_whole() -> None:
    key = f"{OURS}{'x' * 100_000}"
    (warning,) = unknown_key.check(annotated(key), None, Facts()).warnings
    assert warning.endswith("unknown; Reprieve has no such key")


@pytest.mark.parametrize("facts", [Facts(), REFUSING])
def test_a_very_long_key_is_not_repeated(facts: Facts) -> None:
    """Without this, a client that does not read its responses would fill the memory with them."""
    key = OURS + "a" * 1_000_000
    for resource in (labelled(key), annotated(key)):
        assert len(str(decide_admission(resource, None, facts))) < 3000


def test_each_key_of_ours_has_a_place() -> None:
    ours = {
        value
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, str) and value.startswith(OURS) and value != OURS
    }
    placed = {key for place in key_places.PLACES for key in place.labels | place.annotations}
    assert placed | key_places._NEITHER.keys() == ours
    assert not placed & key_places._NEITHER.keys()


def test_every_key_of_other_projects_is_right_as_it_is() -> None:
    assert not any(map(misspelled_keys.is_suspicious, misspelled_keys._RIGHT))


@pytest.mark.parametrize(
    ("key", "is_suspicious"),
    [
        (OURS + "x" * 400, True),
        ("x" * 400 + "/preemption-class", False),
        (keys.TOLERATION_PREFIX + "x" * 400, False),
    ],
    ids=["ours", "one of our names", "a prefix that users type"],
)
def test_what_is_too_long_to_be_a_key_is_not_cached(key: str, *, is_suspicious: bool) -> None:
    caches = (misspelled_keys._is_suspicious, misspelled_keys._resembled)
    before = [cache.cache_info() for cache in caches]
    assert misspelled_keys.is_suspicious(key) is is_suspicious
    assert misspelled_keys.resembled(key) == ""
    assert [cache.cache_info() for cache in caches] == before
