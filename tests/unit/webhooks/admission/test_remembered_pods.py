"""Pods of one template are reviewed twice, and each answer is that of a whole review."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.config.namespace import OFF, WARN, NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import Verdict
from reprieve_testing.objects import builders, generated_metadata
from reprieve_testing.servers.reviews import Document, FixedFacts, a_pod, a_review
from reprieve_webhooks.admission import handlers, remembered_pods, review
from reprieve_webhooks.admission.handlers import ALLOWED, DENIED, PATCHED, WARNED, AdmissionResponse
from reprieve_webhooks.admission.remembered_pods import RememberedPods
from reprieve_webhooks.admission.review import AdmissionRequest

CONTROLLER = "system:serviceaccount:kube-system:job-controller"
GATING = PolicySettings(gang_gate=True)
CLASSES = {"training": builders.a_priority_class("training").resource}
INDEX, POD_INDEX = keys.COMPLETION_INDEX, "apps.kubernetes.io/pod-index"
OF_STATEFUL_SET = "statefulset.kubernetes.io/pod-name"
OWN = (INDEX, POD_INDEX, OF_STATEFUL_SET, keys.JOB, keys.JOB_UID, "job-name", "controller-uid")


@dataclass
class Watched(FixedFacts):
    """Fixed facts, as watches tell them."""

    version: int = 1
    is_watched: bool = True
    has_ledger: bool = False
    versions_during_reviews: list[int] = field(default_factory=list)
    """Each is the version from the middle of a review on."""
    reviews: int = 0

    def are_watched(self, namespace: str, facts: Facts) -> bool:
        return self.is_watched and (namespace, facts) == ("team-a", self.facts)

    def inherits_nothing(self, pod: Resource, namespace: str) -> bool:  # noqa: ARG002
        return not self.has_ledger

    async def facts_for(self, request: AdmissionRequest, resource: Resource) -> Facts:
        self.reviews += 1
        self.version = next(iter(self.versions_during_reviews), self.version)
        return await super().facts_for(request, resource)


def pod(
    name: str = "train-x7k2p",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Document | None = None,
    **metadata: Any,
) -> Document:
    made = a_pod(labels=labels, annotations=annotations)
    made["metadata"] |= {"name": name, "uid": f"uid-of-{name}", **metadata}
    made["spec"] |= {"priorityClassName": "training", **(spec or {})}
    return made


def token_volume(letters: str) -> Document:
    """Return the fields of a spec by which each container gets the token of its pod."""
    name = f"kube-api-access-{letters}"
    mount = {"name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container = {"name": "train", "image": "train", "volumeMounts": [mount]}
    return {"volumes": [{"name": name, "projected": {}}], "containers": [container]}


WEBHOOKS = {"mutate": handlers.mutate, "validate": handlers.validate}
AT_ONCE = {"mutate": handlers.mutate_now, "validate": handlers.validate_now}
of_both = pytest.mark.parametrize("webhook", WEBHOOKS)


def parse(document: Document, **request: Any) -> AdmissionRequest:
    parsed = review.parse(json.dumps(a_review(document, **request)).encode())
    assert isinstance(parsed, AdmissionRequest)
    return parsed


async def answer_twice(
    document: Document, source: Watched, remembered: RememberedPods, webhook: str = "validate"
) -> None:
    """Answer two equal pods: the second answer is remembered, if it may be."""
    for _ in range(2):
        await answer(document, source, remembered, webhook)


async def answer(
    document: Document,
    source: Watched,
    remembered: RememberedPods | None,
    webhook: str = "validate",
    **request: Any,
) -> AdmissionResponse:
    parsed = parse(document, **request)
    at_once = None if remembered is None else AT_ONCE[webhook](parsed, remembered)
    answered = await WEBHOOKS[webhook](parsed, source, remembered)
    assert isinstance(answered, AdmissionResponse)
    assert at_once in (None, answered)
    return answered


def of_a_job(name: str) -> Document:
    owner = {"kind": "Job", "name": name, "uid": f"uid-of-{name}", "controller": True}
    labels = {keys.JOB: name, keys.JOB_UID: owner["uid"], "job-name": name}
    return pod(f"{name}-x7k2p", labels=labels, ownerReferences=[owner])


ALIKE: dict[str, tuple[Document, Document]] = {
    "their names": (pod("train-a"), pod("train-b")),
    "the time of their creation": (
        pod(creationTimestamp="2026-01-02T15:04:05Z"),
        pod(creationTimestamp="2026-01-02T15:04:06Z"),
    ),
    "the letters of their tokens' volumes": (
        pod(spec=token_volume("x7k2p")),
        pod(spec=token_volume("q8z4d")),
    ),
    "their index in a Job": (
        pod(labels={INDEX: "0", "app": "a"}, annotations={INDEX: "0"}),
        pod(labels={INDEX: "1", "app": "a"}, annotations={INDEX: "1"}),
    ),
    "their name and index in a StatefulSet": (
        pod(labels={POD_INDEX: "0", OF_STATEFUL_SET: "a-0"}),
        pod(labels={POD_INDEX: "1", OF_STATEFUL_SET: "a-1"}),
    ),
    "their Job": (of_a_job("a"), of_a_job("b")),
}


@of_both
@pytest.mark.parametrize(("first", "second"), ALIKE.values(), ids=ALIKE.keys())
async def test_pods_that_differ_only_in_this_get_their_answer_at_once(
    first: Document, second: Document, webhook: str
):
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    await answer_twice(first, source, remembered, webhook)

    answered = await answer(second, source, remembered, webhook)

    assert source.reviews == 2
    assert answered == await answer(second, source, None, webhook)
    assert answered.outcome == {"mutate": PATCHED, "validate": ALLOWED}[webhook]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"labels": {keys.PREEMPTION_CLASS: "11"}}, DENIED),
        ({"labels": {keys.PREFIX + "no-such-key": "x"}}, WARNED),
    ],
)
async def test_pods_are_refused_and_warned_about_in_the_same_words(
    said: dict[str, Any], outcome: str
):
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    await answer_twice(pod("train-a", **said), source, remembered)

    answered = await answer(pod("train-b", **said), source, remembered)

    assert source.reviews == 2
    assert answered == await answer(pod("train-b", **said), source, None)
    assert answered.outcome == outcome


GANG = {keys.POD_GROUP: "ring"}
REVIEWED_EACH: dict[str, Document] = {
    "refused in words that name its token's volume": pod(
        annotations={keys.CHECKPOINT_HINT: "kube-api-access-x7k2p"}
    ),
    "in a gang": pod(labels=GANG),
    "of a JobSet": pod(labels={keys.JOBSET: "ring"}),
    "of a quota": pod(labels={keys.QUOTA_NAME: "small"}),
    "in need of a permission": pod(labels={keys.PREEMPTIBLE: "false"}),
    "too large": pod(annotations={"note": "x" * remembered_pods.MAX_BYTES}),
}


DEFAULTED_EACH: dict[str, Document] = {
    "in a gang": pod(labels=GANG),
    "may wait for its gang": pod(
        labels={keys.JOB: "ring"}, annotations={keys.KOORDINATOR_MIN_AVAILABLE: "4"}
    ),
    "gets the agent": pod(
        annotations={keys.AGENT: "enabled", keys.CHECKPOINT_HINT: "file:///data/x"}
    ),
}


@pytest.mark.parametrize("document", DEFAULTED_EACH.values(), ids=DEFAULTED_EACH.keys())
async def test_the_defaults_of_a_pod_like_this_are_never_remembered(document: Document):
    source = Watched(Facts(settings=GATING, priority_classes=CLASSES))
    remembered = RememberedPods(source)

    await answer_twice(document, source, remembered, "mutate")

    assert source.reviews == 2
    assert len(remembered) == 0


async def test_only_the_name_of_the_tokens_volume_is_left_out():
    """Without this, a hint that a rule refuses would get the answer to one that it does not."""
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    first, other = (
        pod(
            annotations={keys.CHECKPOINT_HINT: f"http://:8080/kube-api-access-{letters}"},
            spec={"containers": [{"name": "train", "ports": [{"containerPort": 8080}]}]},
        )
        for letters in ("abcde", "a b\tc")
    )
    await answer_twice(first, source, remembered)

    assert (await answer(other, source, remembered)).outcome == DENIED


async def test_a_pod_that_was_seen_once_is_not_remembered():
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)

    await answer(pod(), source, remembered)

    assert len(remembered) == 0


async def test_remembered_defaults_are_not_those_of_a_pod_whose_owner_keeps_a_ledger():
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    await answer_twice(of_a_job("a"), source, remembered, "mutate")
    source.has_ledger = True

    await answer(of_a_job("b"), source, remembered, "mutate")

    assert source.reviews == 3


async def test_no_defaults_are_remembered_where_an_owner_keeps_a_ledger():
    source = Watched(Facts(priority_classes=CLASSES), has_ledger=True)
    remembered = RememberedPods(source)

    await answer_twice(pod(), source, remembered, "mutate")

    assert len(remembered) == 0


@pytest.mark.parametrize("document", REVIEWED_EACH.values(), ids=REVIEWED_EACH.keys())
async def test_a_pod_that_is_this_is_never_remembered(document: Document):
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)

    await answer_twice(document, source, remembered)

    assert source.reviews == 2
    assert len(remembered) == 0


OTHER: dict[str, tuple[Document, dict[str, Any]]] = {
    "label": (pod(labels={"app": "b"}), {}),
    "annotation": (pod(annotations={"a": "b"}), {}),
    "spec": (pod(spec={"priorityClassName": None}), {}),
    "owner": (of_a_job("a"), {}),
    "name of a Job, which cannot be one": (pod(labels={keys.JOB: "-"}), {}),
    "namespace": (pod(), {"namespace": "team-b"}),
    "user": (pod(), {"userInfo": {"username": CONTROLLER}}),
}


@pytest.mark.parametrize(("document", "request_fields"), OTHER.values(), ids=OTHER.keys())
async def test_a_pod_with_another_of_these_is_reviewed(
    document: Document, request_fields: dict[str, Any]
):
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    await answer_twice(pod(), source, remembered)

    await answer(document, source, remembered, **request_fields)

    assert source.reviews == 3


@of_both
async def test_an_update_is_reviewed_each_time(webhook: str):
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    await answer_twice(pod(), source, remembered, webhook)

    await answer(pod(), source, remembered, webhook, old=pod())

    assert source.reviews == 3


async def test_what_a_watch_learns_counts_for_the_next_pod():
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)
    await answer_twice(pod(labels={keys.PREEMPTION_CLASS: "6"}), source, remembered)
    source.facts = Facts(
        priority_classes=CLASSES, namespace=NamespacePolicy(enforcement=WARN, default_class=1)
    )
    source.version += 1

    await answer(pod(labels={keys.PREEMPTION_CLASS: "6"}), source, remembered)

    assert source.reviews == 3


@of_both
async def test_a_pod_is_not_remembered_if_a_watch_learnt_something_during_its_review(webhook: str):
    source = Watched(Facts(priority_classes=CLASSES), versions_during_reviews=[2])
    remembered = RememberedPods(source)
    await answer(pod(), source, remembered, webhook)
    source.versions_during_reviews = [3]

    await answer(pod(), source, remembered, webhook)

    assert len(remembered) == 0


@of_both
async def test_a_pod_is_not_remembered_if_an_object_was_read_for_it(webhook: str):
    source = Watched(Facts(priority_classes=CLASSES), is_watched=False)
    remembered = RememberedPods(source)

    await answer_twice(pod(), source, remembered, webhook)

    assert len(remembered) == 0


def test_a_verdict_of_too_many_words_is_not_remembered():
    source = Watched(Facts(priority_classes=CLASSES))
    remembered, request = RememberedPods(source), parse(pod())
    assert request.object is not None
    key = remembered.key_of(request, request.object)
    assert key is not None

    verdict = Verdict(warnings=("x" * remembered_pods.MAX_BYTES, "x"))
    for _ in range(2):
        remembered.add_verdict(key, request.object, source.facts, source.version, verdict)

    assert len(remembered) == 0


async def test_the_oldest_pods_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remembered_pods, "MAX_PODS", 3)
    source = Watched(Facts(priority_classes=CLASSES))
    remembered = RememberedPods(source)

    for number in range(5):
        await answer_twice(pod(labels={"app": str(number)}), source, remembered)

    assert len(remembered) == 3


WHY_A_FACT_CANNOT_DIFFER = {
    "settings": "watched",
    "namespace": "watched",
    "priority_classes": "watched",
    "quotas": "watched",
    "policy_config_map": "never changes",
    "own_image": "only read for a pod that gets the agent",
    "checkpoint_service": "only read for a pod that gets the agent",
    "missing_permissions": "a pod that needs a permission is not remembered",
    "ledger_entry": "defaults are given only where no owner keeps a ledger",
    "gang_traits": "only read for declared gangs",
    "gang_statement": "only read for pods that name an object of a gang",
    "job_requests": "only read for pods of a quota",
    "workload_annotations": "only read for PodGroups",
    "is_offline": "never in the webhooks",
    "operator_is_live": "only read for deletions and evictions",
    "operator_opens_gates": "only read for pods that may wait for their gang",
    "pods_created_together": "only read for pods that may wait for their gang",
}
"""Of two pods with one key. A new fact needs a line here, and perhaps a condition in the module."""


def test_no_fact_is_forgotten():
    assert {one.name for one in fields(Facts)} == WHY_A_FACT_CANNOT_DIFFER.keys()


_LETTERS = st.sampled_from(["x7k2p", "q8z4d", "", "X7K2P", "x7k2px7k2p"])
_INDICES = st.sampled_from(["0", "1", "12", "x"])
_FURTHER_LABELS = st.fixed_dictionaries(
    {},
    optional={
        INDEX: _INDICES,
        POD_INDEX: _INDICES,
        "job-name": st.just("a"),
        keys.JOB: st.sampled_from(["a", "b", "-"]),
        keys.POD_GROUP: st.sampled_from(["a", "-"]),
        keys.KUEUE_QUEUE: st.just("a"),
        keys.QUOTA_NAME: st.just("small"),
        keys.KOORDINATOR_SOFT_EVICTION: st.just("true"),
        keys.PREFIX + "clas": st.just("4"),
    },
)
_FURTHER_ANNOTATIONS = {
    INDEX: _INDICES,
    keys.AGENT: st.just("enabled"),
    keys.KOORDINATOR_MIN_AVAILABLE: st.sampled_from(["1", "4", "x"]),
}
_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "priorityClassName": st.sampled_from(["training", "absent", "kube-api-access-x7k2p"]),
        "priority": st.sampled_from([0, 1000, 2_000_000_000]),
        "nodeName": st.just("node-1"),
        "terminationGracePeriodSeconds": st.sampled_from([0, 30, 3600]),
        "tolerations": st.just([{"operator": "Exists"}]),
        "schedulingGroup": st.just({"podGroupName": "a"}),
    },
)
_USERS = st.sampled_from(["ada", CONTROLLER])
_OWNERS = st.sampled_from([None, [{"kind": "Job", "name": "a", "uid": "1", "controller": True}]])


@st.composite
def pods(draw: st.DrawFn) -> Document:
    said = draw(generated_metadata.pod_metadata)
    spec = draw(_SPECS)
    if draw(st.booleans()):
        spec |= token_volume(draw(_LETTERS))
    return pod(
        draw(st.sampled_from(["a", "b", "training", ""])),
        labels={**said.labels, **draw(_FURTHER_LABELS)},
        annotations={
            **said.annotations,
            **draw(st.fixed_dictionaries({}, optional=_FURTHER_ANNOTATIONS)),
        },
        spec=spec,
        ownerReferences=draw(_OWNERS),
    )


@st.composite
def families(draw: st.DrawFn) -> list[Document]:
    """Return some pods, each with others that differ from it in what its workload does not say."""
    made: list[Document] = []
    for first in draw(st.lists(pods(), min_size=1, max_size=2)):
        made += [first, *(_sibling(first, str(number), draw(_LETTERS)) for number in range(4))]
    return made


def _sibling(first: Document, number: str, letters: str) -> Document:
    text = re.sub('kube-api-access-[^"]*', f"kube-api-access-{letters}", json.dumps(first))
    sibling: Document = json.loads(text)
    sibling["metadata"] |= dict.fromkeys(("name", "uid", "creationTimestamp"), number)
    for owner in sibling["metadata"]["ownerReferences"] or ():
        owner |= {"name": number, "uid": number}
    for holder in ("labels", "annotations"):
        entries = sibling["metadata"].get(holder, {})
        entries |= {key: number for key in OWN if key in entries}
    return sibling


_POLICIES = st.sampled_from(
    [NamespacePolicy(), NamespacePolicy(enforcement=WARN), NamespacePolicy(enforcement=OFF)]
)
_SETTINGS = st.sampled_from([PolicySettings(), PolicySettings(default_preemptible=False), GATING])


_REQUESTS = st.fixed_dictionaries(
    {
        "webhook": st.sampled_from(list(WEBHOOKS)),
        "userInfo": st.builds(dict, username=_USERS),
        "dryRun": st.booleans(),
    }
)


@given(families(), _POLICIES, _SETTINGS, _REQUESTS)
def test_every_answer_is_that_of_a_whole_review(
    documents: list[Document],
    policy: NamespacePolicy,
    settings: PolicySettings,
    request: dict[str, Any],
):
    source = Watched(
        Facts(
            settings=settings,
            namespace=policy,
            priority_classes=CLASSES,
            operator_opens_gates=True,
            pods_created_together=4,
        )
    )

    async def compare() -> None:
        remembered = RememberedPods(source)
        for document in documents:
            answered = await answer(document, source, remembered, **request)
            assert answered == await answer(document, source, None, **request)

    asyncio.run(compare())
