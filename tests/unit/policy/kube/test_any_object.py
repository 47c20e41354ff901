"""The policy never raises, whatever labels and annotations hold, so no object breaks a webhook."""

from random import Random

from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.checkpointing import checkpoint_plan, contract
from reprieve_policy.config import namespace, settings, toleration
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import dialects
from reprieve_policy.keys import (
    ALLOWED_PREEMPTION_CLASSES,
    CAN_PREEMPT,
    CHECKPOINT,
    CHECKPOINT_HINT,
    CHECKPOINT_TIMEOUT,
    COMPLETION_INDEX,
    DEFAULT_PREEMPTION_CLASS,
    ENFORCEMENT,
    ESTIMATED_CHECKPOINT_TIME,
    HOME_NAMESPACE,
    KOORDINATOR_SOFT_EVICTION,
    MAX_DEFERRAL,
    MINIMUM_PREEMPTABLE_PRIORITY,
    OLD_TOLERATION_PREFIX,
    PREEMPTIBLE,
    PREEMPTION_CLASS,
    PREEMPTION_PRIORITY_CLASS,
    QUOTA_NAME,
    REQUEUE_ENV,
    SOFT_EVICTION,
    TOLERATION_PREFIX,
    TOLERATION_SECONDS,
    WORKLOAD_TYPE,
)
from reprieve_policy.kube.kinds import CUSTOM
from reprieve_policy.kube.kinds import KINDS as KINDS_BY_NAME
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import (
    Container,
    ContainerPort,
    NodeToleration,
    ObjectMeta,
    OwnerReference,
    PodGroupTemplate,
    PodTemplate,
    Quantities,
    Resource,
    ResourceRequirements,
    Spec,
    VolumeMount,
)
from reprieve_policy.lifecycle import eviction, ledger, mark
from reprieve_testing.safe_texts import is_showable

KEYS = [
    *(
        PREEMPTION_CLASS,
        PREEMPTIBLE,
        CAN_PREEMPT,
        CHECKPOINT,
        CHECKPOINT_HINT,
        CHECKPOINT_TIMEOUT,
        MAX_DEFERRAL,
    ),
    *(
        SOFT_EVICTION,
        KOORDINATOR_SOFT_EVICTION,
        PREEMPTION_PRIORITY_CLASS,
        COMPLETION_INDEX,
        QUOTA_NAME,
    ),
    *(ESTIMATED_CHECKPOINT_TIME, REQUEUE_ENV),
    *(WORKLOAD_TYPE, ALLOWED_PREEMPTION_CLASSES, DEFAULT_PREEMPTION_CLASS, ENFORCEMENT),
    *(place.key for place in sorted(dialects.GANG_FIELDS) if place.holder != "spec"),
    TOLERATION_PREFIX + MINIMUM_PREEMPTABLE_PRIORITY,
    TOLERATION_PREFIX + TOLERATION_SECONDS,
    OLD_TOLERATION_PREFIX + TOLERATION_SECONDS,
]
TEXTS = [
    *(
        "",
        "true",
        "false",
        "requested",
        "none",
        "auto",
        "sensitive",
        "off",
        "warn",
        "low",
        "0",
        "4",
        "10",
        "11",
        "-1",
    ),
    *(
        "0-6",
        "6-0",
        "5m",
        "0s",
        "9" * 5000 + "h",
        "999999h",
        "http://:8080/x",
        "http://:99999/x",
        "annotation:",
    ),
    *(
        "2147483648",
        "9223372037",
        "9" * 5000,
        "0" * 5000,
        "٣",
        "\0",
        "\n",
        "\ud800",
        "\u2028",
        "x" * 20_480,
    ),
    *(
        "{",
        "[]",
        "{}",
        "null",
        "NaN",
        '{"timestamp":Infinity}',
        '{"timestamp":true}',
        '{"timestamp":1e999}',
    ),
    *(
        '{"timestamp":"9999-12-31T23:59:59-12:00"}',
        '{"timestamp":99999999999999999999}',
        '{"initiator":"\\ud800"}',
    ),
    *(
        '{"deleteOptions":{"gracePeriodSeconds":1e3}}',
        '{"reason":1,"reason":{}}',
        "[" * 200 + "]" * 200,
    ),
    *(
        "[" * 9000,
        '{"a":' * 2000,
        '{"timestamp":' + "[" * 970 + "]" * 970 + "}",
        '{"state":"saved","path":"\\ud800"}',
    ),
    *(
        "grpc://:1",
        "signal://USR1?container=low",
        "file:///low/x",
        "file://" + "/x" * 9000,
        "1e99",
        "-1m",
        "1.5Gi",
    ),
    *(
        '{"v":1}',
        '{"v":1,"slots":{"":{"count":1e9,"first":0}}}',
        '{"slots":[[]]}',
        '{"v":1,"id":"","phase":"saved"}',
    ),
]
KINDS = [*KINDS_BY_NAME, CUSTOM]


def texts(chance: Random) -> dict[str, str] | None:
    return (
        None
        if chance.random() < 0.1
        else {chance.choice(KEYS): chance.choice(TEXTS) for _ in range(4)}
    )


def metadata(chance: Random) -> ObjectMeta:
    owner = OwnerReference(
        kind=chance.choice(["Job", "StatefulSet", "ReplicaSet", ""]),
        controller=chance.choice([True, None]),
    )
    return ObjectMeta(
        name=chance.choice([None, "low", "\ud800"]),
        labels=texts(chance),
        annotations=texts(chance),
        ownerReferences=chance.choice([None, (), (owner,)]),
    )


def amounts(chance: Random) -> Quantities | None:
    written = [*TEXTS, 7, -7, 0.5, 1e300, float("inf"), float("nan"), 10**40]
    names = ["cpu", "", "\n", "\ud800", "x" * 20_480]
    return chance.choice([None, {chance.choice(names): chance.choice(written) for _ in range(3)}])


def a_container(chance: Random) -> Container:
    mounts = (VolumeMount(mountPath=chance.choice(["", "/", "low", "/low", "/low//"])),)
    return Container(
        name=chance.choice(["", "low"]),
        ports=chance.choice(
            [None, (ContainerPort(containerPort=chance.choice([-1, 0, 1, 8080])),)]
        ),
        volumeMounts=chance.choice([None, mounts]),
        resources=chance.choice(
            [None, ResourceRequirements(requests=amounts(chance), limits=amounts(chance))]
        ),
        restartPolicy=chance.choice([None, "Always", ""]),
    )


def a_pods_spec(chance: Random) -> Spec:
    return Spec(
        priority=7,
        terminationGracePeriodSeconds=chance.choice([None, -1, 0, 2**63]),
        containers=chance.choice([None, (), (a_container(chance), a_container(chance))]),
        initContainers=chance.choice([None, (a_container(chance),)]),
        overhead=amounts(chance),
        replicas=chance.choice([None, -1, 2**31]),
        min=amounts(chance),
        max=amounts(chance),
    )


def quotas(chance: Random) -> Quotas:
    used, least, most = (amounts(chance) or {} for _ in range(3))
    own = ObjectMeta(name=chance.choice(["low", "\ud800"]), namespace="", annotations=texts(chance))
    return Quotas([quota.read_leniently(own, least, most, used)])


def spec(chance: Random) -> Spec | None:
    template = PodTemplate(
        metadata=chance.choice([None, metadata(chance)]),
        spec=chance.choice([None, a_pods_spec(chance)]),
    )
    names = chance.choice([None, "", "low", "unknown"])
    groups = chance.choice(
        [
            None,
            (),
            (PodGroupTemplate(priorityClassName=names, podGroupTemplates=(PodGroupTemplate(),)),),
        ]
    )
    selector = chance.choice([None, {}, {HOME_NAMESPACE: chance.choice(TEXTS)}])
    tolerations = chance.choice([None, (), (NodeToleration(), NodeToleration(operator="Exists"))])
    said = Spec(
        priorityClassName=names,
        template=chance.choice([None, template]),
        podGroupTemplates=groups,
        nodeSelector=selector,
        tolerations=tolerations,
    )
    return chance.choice([None, said, a_pods_spec(chance)])


def an_object(chance: Random) -> Resource:
    value = chance.choice([None, -(2**31), 0, 1000, 2**31 - 1])
    return Resource(
        kind=chance.choice(KINDS), metadata=metadata(chance), spec=spec(chance), value=value
    )


def facts(chance: Random) -> Facts:
    known = [an_object(chance) for _ in range(2)]
    slots = ledger.parse(chance.choice(TEXTS))
    policy = namespace.read_leniently(texts(chance) or {}, texts(chance) or {})
    return Facts(
        namespace=policy,
        priority_classes=dict(zip(("low", "10"), known, strict=True)),
        ledger_entry=slots.get(""),
        quotas=quotas(chance),
        missing_permissions=chance.choice([frozenset(), frozenset({CLAIM_NON_PREEMPTIBLE})]),
        settings=chance.choice(
            [settings.PolicySettings(), settings.PolicySettings(quota_fit="refuse")]
        ),
    )


def test_any_object_gets_an_answer_in_one_line() -> None:
    for seed in range(250):
        chance = Random(seed)
        resource, old = an_object(chance), chance.choice([None, an_object(chance)])
        known = facts(chance)
        verdict = decide_admission(resource, old, known)
        assert all(is_showable(warning) for warning in verdict.warnings)
        assert all(is_showable(str(violation)) for violation in verdict.violations)
        assert all(len(str(violation)) < 500 for violation in verdict.violations)
        decide_defaults(resource, old, known)


def test_no_parser_raises_for_any_text() -> None:
    for text in TEXTS:
        for key in KEYS:
            annotations = {key: text}
            namespace.read_leniently(annotations, annotations)
            checkpoint_plan.read_leniently(annotations, settings.PolicySettings())
            toleration.parse(annotations, 0)
            mark.read(annotations, annotations)
        for key in settings.FIELDS:
            settings.parse({key: text})
        contract.parse_answer(text, "answer")
        ledger.render(ledger.parse(text)).encode()
        assert eviction.parse(text) is None
