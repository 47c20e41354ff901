"""Marks and state need rights; the text alone is not enough. Checked on the real API server.

Users with some rights, and without others, try each change. Only the base's guard takes part and no
webhook, so all of this also holds while the webhooks are down.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from realcluster.client.kubectl import Done
from realcluster.install import BASE
from reprieve_policy import keys
from reprieve_testing.cluster import ClusterHandle
from reprieve_testing.people import ImpersonatedUser, cluster_binding, role, rule, until_answered

pytestmark = pytest.mark.cluster

NAMESPACE = "guard-marks"
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
WAYS = ["", "status"]
"""Through the pod, and through its status."""

MARKS = {
    "our label": ("labels", keys.SOFT_EVICTION, "requested"),
    "our label, for an eviction": ("labels", keys.SOFT_EVICTION, "evict"),
    "Koordinator's label": ("labels", keys.KOORDINATOR_SOFT_EVICTION, "descheduler"),
    "Koordinator's annotation": ("annotations", keys.KOORDINATOR_SOFT_EVICTION, "true"),
}
STATE = {
    "a phase": ("labels", keys.SOFT_EVICTION, "saved"),
    "the state": ("annotations", keys.EVICTION, '{"v":1}'),
    "a request": ("annotations", keys.CHECKPOINT_REQUEST, '{"version":1}'),
}
NEEDS_DELETE = "Forbidden: setting a soft-eviction mark needs the right to delete the pod"
NEEDS_REPORT = (
    "Forbidden: written by Reprieve only "
    '(needs verb "report" on softevictions.reprieve.dev, cluster-wide)'
)
NEEDS_MARK = (
    "Forbidden: written by Reprieve only "
    '(needs verb "mark" on softevictions.reprieve.dev, cluster-wide)'
)
NEEDS_CANCEL = (
    "Forbidden: taking a soft eviction back needs "
    'verb "cancel" on softevictions.reprieve.dev, cluster-wide'
)


@dataclass(frozen=True)
class People:
    """The users of these tests."""

    admin: ImpersonatedUser
    writer: ImpersonatedUser
    """May create and patch pods, their status included, and not delete them."""
    deleter: ImpersonatedUser
    """May delete them as well."""
    owner: ImpersonatedUser
    """May do everything in the namespace, by wildcards."""
    canceller: ImpersonatedUser
    """May patch pods and cancel soft evictions."""
    operator: ImpersonatedUser


@pytest.fixture(scope="module")
def people(cluster: ClusterHandle) -> Iterator[People]:
    kubectl = cluster.kubectl
    kubectl.read("apply", "-f", BASE / "people-rbac.yaml")
    pods = "pods pods/status pods/binding bindings"
    # Where enforcement is off, the guard holds all the same.
    labels = {"reprieve.dev/enforcement": "off"}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": labels},
        },
        *role("writer", NAMESPACE, [rule(pods, "get create patch update")]),
        *role("deleter", NAMESPACE, [rule(pods, "get create patch update delete")]),
        *role("owner", NAMESPACE, [rule("*", "*", group="*")]),
        *role("canceller", NAMESPACE, [rule(pods, "get patch")]),
        cluster_binding("canceller", "reprieve:cancel-soft-evictions"),
    )
    names = ("admin", "writer", "deleter", "owner", "canceller")
    who = {name: ImpersonatedUser(kubectl, name, NAMESPACE) for name in names}
    who["admin"] = _Admin(kubectl, "admin", NAMESPACE)
    marked = a_pod("unseen", labels={keys.SOFT_EVICTION: "requested"})
    creating = ("create", "--dry-run=server", "-f", "-")
    until_answered(NEEDS_DELETE, lambda: who["writer"].run(*creating, stdin=marked))
    until_answered("created", lambda: who["owner"].run(*creating, stdin=marked))
    yield People(**who, operator=ImpersonatedUser(kubectl, OPERATOR, NAMESPACE))
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl.run("delete", "clusterrolebinding", "test:canceller")


class _Admin(ImpersonatedUser):
    def run(self, *words: object, stdin: str | None = None) -> Done:
        return self.kubectl.run("-n", self.namespace, *words, stdin=stdin)


@pytest.fixture
def pod(people: People, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a pod that stays unscheduled; return its name."""
    name = f"pod-{abs(hash(request.node.name)):x}"
    created = people.admin.run("create", "-f", "-", stdin=a_pod(name))
    assert created.status == 0, created.output
    yield name
    people.admin.run("delete", "pod", name, "--grace-period=0", "--force")


def a_pod(name: str, **metadata: object) -> str:
    naming = {"name": name} if name else {"generateName": "generated-"}
    container = {"name": "main", "image": "localhost/reprieve/python:1", "imagePullPolicy": "Never"}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**naming, **metadata}, "spec": spec}
    )


def metadata(part: str, key: str, value: object) -> str:
    return json.dumps({"metadata": {part: {key: value}}})


def refused(done: Done, words: str) -> bool:
    return done.status != 0 and "(Forbidden)" in done.output and words in done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mark", MARKS)
def test_who_may_not_delete_a_pod_may_not_mark_it(
    people: People, pod: str, mark: str, way: str
) -> None:
    part, key, value = MARKS[mark]
    done = people.writer.patch(pod, metadata(part, key, value), way)
    assert refused(done, f"metadata.{part}[{key}]: {NEEDS_DELETE}"), done.output


@pytest.mark.parametrize("name", ["named", ""], ids=["with a name", "with a generated name"])
@pytest.mark.parametrize("mark", MARKS)
def test_who_may_not_delete_a_pod_may_not_create_it_marked(
    people: People, mark: str, name: str
) -> None:
    part, key, value = MARKS[mark]
    done = people.writer.run("create", "-f", "-", stdin=a_pod(name, **{part: {key: value}}))
    assert refused(done, NEEDS_DELETE), done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mark", MARKS)
def test_who_may_delete_a_pod_may_mark_it(people: People, pod: str, mark: str, way: str) -> None:
    part, key, value = MARKS[mark]
    done = people.deleter.patch(pod, metadata(part, key, value), way)
    assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
def test_no_owner_says_for_whom_a_pod_goes(people: People, pod: str, way: str) -> None:
    forged = metadata("annotations", keys.PREEMPTOR, "uid-of-anybody")
    done = people.owner.patch(pod, forged, way)
    assert refused(done, f"metadata.annotations[{keys.PREEMPTOR}]: {NEEDS_MARK}"), done.output
    created = people.owner.run(
        "create", "-f", "-", stdin=a_pod("forged", **json.loads(forged)["metadata"])
    )
    assert refused(created, NEEDS_MARK), created.output


def test_no_owner_takes_away_for_whom_a_pod_goes_and_the_operator_does(
    people: People, pod: str
) -> None:
    assert (
        people.admin.patch(pod, metadata("annotations", keys.PREEMPTOR, "uid-of-high")).status == 0
    )
    gone = metadata("annotations", keys.PREEMPTOR, None)
    done = people.owner.patch(pod, gone)
    assert refused(done, NEEDS_MARK), done.output
    done = people.operator.patch(pod, gone)
    assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", STATE)
def test_a_tenant_with_every_verb_on_everything_writes_no_state(
    people: People, pod: str, what: str, way: str
) -> None:
    part, key, value = STATE[what]
    done = people.owner.patch(pod, metadata(part, key, value), way)
    assert refused(done, f"metadata.{part}[{key}]: {NEEDS_REPORT}"), done.output


GANGS = {
    "a label": ("labels", keys.POD_GROUP),
    "an annotation": ("annotations", keys.KOORDINATOR_GANG),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("gang", GANGS)
def test_a_marked_pod_joins_no_gang_whose_pods_one_may_not_delete(
    people: People, pod: str, gang: str, mark: str, way: str
) -> None:
    """The operator may not have looked yet: the mark would reach that gang."""
    part, key = GANGS[gang]
    joining = metadata(part, key, "theirs")
    assert people.writer.run("patch", "pod", pod, "--dry-run=server", "-p", joining).status == 0
    assert people.admin.patch(pod, metadata(*MARKS[mark])).status == 0
    done = people.writer.patch(pod, joining, way)
    assert refused(
        done, f"metadata.{part}[{key}]: Forbidden: having a marked pod join a gang needs"
    ), done.output
    assert people.writer.patch(pod, metadata(part, "example.com/note", "x"), way).status == 0
    done = people.deleter.patch(pod, joining, way)
    assert done.status == 0, done.output
    assert people.writer.patch(pod, metadata(part, key, None), way).status == 0


def test_who_may_delete_one_pod_only_may_not_mark_it_as_one_of_a_gang(
    people: People, pod: str
) -> None:
    """A gang is evicted as a whole. Any pod may join it, so the mark would reach pods that the user
    may not delete.
    """
    only = rule("pods", "get patch delete") | {"resourceNames": [pod]}
    people.admin.kubectl.apply(*role("deleter-of-one", NAMESPACE, [only]))
    person = ImpersonatedUser(people.admin.kubectl, "deleter-of-one", NAMESPACE)
    until_answered("deleted", lambda: person.run("delete", "pod", pod, "--dry-run=server"))
    mark = {keys.SOFT_EVICTION: "requested"}
    alone, joined = (
        {"metadata": {"labels": mark | gang}} for gang in ({}, {keys.POD_GROUP: "theirs"})
    )
    done = person.patch(pod, json.dumps(joined))
    assert done.status != 0
    assert f"{NEEDS_DELETE}, and all of its namespace: its gang goes as a whole" in done.output
    assert (
        people.deleter.run("patch", "pod", pod, "--dry-run=server", "-p", json.dumps(joined)).status
        == 0
    )
    done = person.patch(pod, json.dumps(alone))
    assert done.status == 0, done.output


@pytest.mark.parametrize("what", STATE)
def test_no_tenant_creates_a_pod_with_state(people: People, what: str) -> None:
    part, key, value = STATE[what]
    done = people.owner.run("create", "-f", "-", stdin=a_pod("forged", **{part: {key: value}}))
    assert refused(done, NEEDS_REPORT), done.output


def test_no_tenant_sets_the_finalizer_nor_takes_it_away(people: People, pod: str) -> None:
    hold, release = (
        '{"metadata":{"finalizers":["reprieve.dev/cleanup"]}}',
        '{"metadata":{"finalizers":null}}',
    )
    assert refused(people.owner.patch(pod, hold), NEEDS_REPORT)
    assert people.operator.patch(pod, hold).status == 0
    assert refused(
        people.owner.patch(pod, release), "metadata.finalizers[reprieve.dev/cleanup]: Forbidden"
    )
    assert people.canceller.patch(pod, release).status == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_tenant_with_every_verb_on_everything_cancels_nothing(
    people: People, pod: str, way: str
) -> None:
    people.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    done = people.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, None), way)
    assert refused(done, f"metadata.labels[{keys.SOFT_EVICTION}]: {NEEDS_CANCEL}"), done.output


def test_who_may_cancel_takes_the_mark_away_and_may_not_set_one(people: People, pod: str) -> None:
    assert refused(
        people.canceller.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested")),
        NEEDS_DELETE,
    )
    people.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    done = people.canceller.patch(pod, metadata("labels", keys.SOFT_EVICTION, None))
    assert done.status == 0, done.output


def test_koordinators_mark_is_taken_back_by_who_may_set_it_until_reprieve_has_begun(
    people: People, pod: str
) -> None:
    set_it = metadata(
        "annotations", keys.KOORDINATOR_SOFT_EVICTION, '{"initiator":"koord-descheduler"}'
    )
    take_it = metadata("annotations", keys.KOORDINATOR_SOFT_EVICTION, None)
    assert people.deleter.patch(pod, set_it).status == 0
    assert refused(
        people.writer.patch(pod, take_it),
        "removing a soft-eviction mark needs the right to delete the pod",
    )
    assert people.deleter.patch(pod, take_it).status == 0
    assert people.deleter.patch(pod, set_it).status == 0
    under_way = metadata("annotations", keys.EVICTION, '{"v":1,"id":"x","phase":"hinted"}')
    assert people.operator.patch(pod, under_way).status == 0
    assert refused(people.deleter.patch(pod, take_it), NEEDS_CANCEL)
    assert people.canceller.patch(pod, take_it).status == 0


def test_after_a_cancellation_the_pod_may_be_marked_again(people: People, pod: str) -> None:
    cancelled = {
        "labels": {keys.SOFT_EVICTION: None},
        "annotations": {keys.EVICTION: '{"v":1,"phase":"cancelled"}'},
    }
    people.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    assert people.operator.patch(pod, json.dumps({"metadata": cancelled})).status == 0
    assert (
        people.deleter.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested")).status == 0
    )


def test_the_operator_writes_a_whole_life(people: People, pod: str) -> None:
    people.deleter.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    for phase in ("hinted", "checkpointing", "extended", "saved", "terminating"):
        state = {
            "labels": {keys.SOFT_EVICTION: phase},
            "annotations": {keys.EVICTION: f'{{"v":1,"phase":"{phase}"}}'},
        }
        done = people.operator.patch(pod, json.dumps({"metadata": state}))
        assert done.status == 0, done.output


def test_no_tenant_sets_a_phase_back(people: People, pod: str) -> None:
    people.operator.patch(pod, metadata("labels", keys.SOFT_EVICTION, "terminating"))
    done = people.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    assert refused(done, NEEDS_REPORT), done.output


@pytest.mark.parametrize("marked", [False, True], ids=["ordinary", "marked"])
def test_updates_that_leave_marks_alone_pass(people: People, pod: str, marked: bool) -> None:  # noqa: FBT001
    if marked:
        people.deleter.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
        people.operator.patch(
            pod, metadata("annotations", keys.EVICTION, '{"v":1,"phase":"hinted"}')
        )
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    for patch, way in (
        (
            json.dumps(
                {
                    "status": {
                        "conditions": [condition],
                        "phase": "Pending",
                        "message": "as a kubelet",
                    }
                }
            ),
            "status",
        ),
        (metadata("labels", "team", "research"), ""),
        (metadata("annotations", keys.CHECKPOINT_ANSWER, '{"state":"saving"}'), ""),
        (metadata("annotations", keys.PREEMPTED_COUNT, "1"), ""),
    ):
        done = people.writer.patch(pod, patch, way)
        assert done.status == 0, done.output


@pytest.mark.parametrize("mark", MARKS | STATE)
def test_a_binding_carries_neither_mark_nor_state_to_the_pod(
    people: People, pod: str, mark: str
) -> None:
    part, key, value = (MARKS | STATE)[mark]
    target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, part: {key: value}},
        "target": target,
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding"
    done = people.owner.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert refused(done, "a binding may not carry a soft-eviction mark or its state"), done.output
