"""Marks and state need rights; the text alone is not enough. Checked on the real API server.

Users with some rights, and without others, try each change. Only the base's guard takes part and no
webhook, so all of this also holds while the webhooks are down.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from realcluster.install import BASE
from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.cluster.impersonated_users import (
    ImpersonatedUser,
    cluster_binding,
    cluster_role,
    role,
    rule,
    until_answered,
)

pytestmark = pytest.mark.cluster

NAMESPACE = "guard-marks"
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
WAYS = ["", "status"]
"""Through the pod, and through its status."""

MARKS = {
    "our label": ("labels", keys.SOFT_EVICTION, "requested"),
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
class UsersByRight:
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
    scheduler: ImpersonatedUser
    """May bind and delete the pods of every namespace, as Volcano's scheduler may."""
    operator: ImpersonatedUser


@pytest.fixture(scope="module")
def users(cluster: ClusterHandle) -> Iterator[UsersByRight]:
    kubectl = cluster.kubectl
    kubectl.read("apply", "-f", BASE / "users-rbac.yaml")
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
        *cluster_role("scheduler", [rule(pods, "create delete")]),
    )
    names = ("admin", "writer", "deleter", "owner", "canceller", "scheduler")
    who = {name: ImpersonatedUser(kubectl, name, NAMESPACE) for name in names}
    who["admin"] = _Admin(kubectl, "admin", NAMESPACE)
    marked = a_pod("unseen", labels={keys.SOFT_EVICTION: "requested"})
    creating = ("create", "--dry-run=server", "-f", "-")
    until_answered(NEEDS_DELETE, lambda: who["writer"].run(*creating, stdin=marked))
    until_answered("created", lambda: who["owner"].run(*creating, stdin=marked))
    can_bind = ("auth", "can-i", "create", "pods", "--subresource=binding")
    until_answered("yes", lambda: who["scheduler"].run(*can_bind))
    yield UsersByRight(**who, operator=ImpersonatedUser(kubectl, OPERATOR, NAMESPACE))
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl.run("delete", "clusterrolebinding", "test:canceller", "test:scheduler")
    kubectl.run("delete", "clusterrole", "test:scheduler")


class _Admin(ImpersonatedUser):
    def run(self, *words: object, stdin: str | None = None) -> Done:
        return self.kubectl.run("-n", self.namespace, *words, stdin=stdin)


@pytest.fixture
def pod(users: UsersByRight, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a pod that stays unscheduled; return its name."""
    name = f"pod-{abs(hash(request.node.name)):x}"
    created = users.admin.run("create", "-f", "-", stdin=a_pod(name))
    assert created.status == 0, created.output
    yield name
    users.admin.run("delete", "pod", name, "--grace-period=0", "--force")


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
def test_a_user_who_may_not_delete_a_pod_may_not_mark_it(
    users: UsersByRight, pod: str, mark: str, way: str
) -> None:
    part, key, value = MARKS[mark]
    done = users.writer.patch(pod, metadata(part, key, value), way)
    assert refused(done, f"metadata.{part}[{key}]: {NEEDS_DELETE}"), done.output


@pytest.mark.parametrize("name", ["named", ""], ids=["with a name", "with a generated name"])
@pytest.mark.parametrize("mark", MARKS)
def test_a_user_who_may_not_delete_a_pod_may_not_create_it_marked(
    users: UsersByRight, mark: str, name: str
) -> None:
    part, key, value = MARKS[mark]
    done = users.writer.run("create", "-f", "-", stdin=a_pod(name, **{part: {key: value}}))
    assert refused(done, NEEDS_DELETE), done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mark", MARKS)
def test_a_user_who_may_delete_a_pod_may_mark_it(
    users: UsersByRight, pod: str, mark: str, way: str
) -> None:
    part, key, value = MARKS[mark]
    done = users.deleter.patch(pod, metadata(part, key, value), way)
    assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
def test_no_pod_owner_may_name_the_preemptor_of_a_pod(
    users: UsersByRight, pod: str, way: str
) -> None:
    forged = metadata("annotations", keys.PREEMPTOR, "uid-of-anybody")
    done = users.owner.patch(pod, forged, way)
    assert refused(done, f"metadata.annotations[{keys.PREEMPTOR}]: {NEEDS_MARK}"), done.output
    created = users.owner.run(
        "create", "-f", "-", stdin=a_pod("forged", **json.loads(forged)["metadata"])
    )
    assert refused(created, NEEDS_MARK), created.output


MEANINGLESS = {
    "a boolean, as in Koordinator's dialect": "true",
    "no text": "",
    "a phase that does not exist": "done",
    "what the guard sets for an eviction": "evict",
    "what stands beside a mark of Koordinator's, without one": "marked",
}


def unsupported(value: str) -> str:
    """Return the refusal of a value of our label."""
    return (
        f'metadata.labels[{keys.SOFT_EVICTION}]: Unsupported value: "{value}": '
        'supported values: "requested"'
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", MEANINGLESS.values(), ids=MEANINGLESS)
def test_a_user_may_set_no_other_value_than_requested(
    users: UsersByRight, pod: str, value: str, way: str
) -> None:
    done = users.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, value), way)
    assert refused(done, unsupported(value)), done.output
    created = a_pod("forged", labels={keys.SOFT_EVICTION: value})
    done = users.owner.run("create", "-f", "-", stdin=created)
    assert refused(done, unsupported(value)), done.output


def test_a_value_that_means_nothing_is_refused_even_to_an_admin_with_all_rights(
    users: UsersByRight, pod: str
) -> None:
    """Its author would wait for an eviction that never comes."""
    for user in (users.admin, users.operator):
        done = user.patch(pod, metadata("labels", keys.SOFT_EVICTION, "true"))
        assert refused(done, unsupported("true")), done.output


def test_the_guards_and_the_webhooks_values_are_accepted_where_they_mean_something(
    users: UsersByRight, pod: str
) -> None:
    # The admin has the verb `mark`, as the guard.
    evict = metadata("labels", keys.SOFT_EVICTION, "evict")
    assert users.admin.run("patch", "pod", pod, "--dry-run=server", "-p", evict).status == 0
    marks = {
        "labels": {keys.SOFT_EVICTION: "marked"},
        "annotations": {keys.KOORDINATOR_SOFT_EVICTION: "true"},
    }
    done = users.deleter.patch(pod, json.dumps({"metadata": marks}))
    assert done.status == 0, done.output


def test_only_the_operator_may_remove_the_preemptor_of_a_pod(users: UsersByRight, pod: str) -> None:
    assert (
        users.admin.patch(pod, metadata("annotations", keys.PREEMPTOR, "uid-of-high")).status == 0
    )
    gone = metadata("annotations", keys.PREEMPTOR, None)
    done = users.owner.patch(pod, gone)
    assert refused(done, NEEDS_MARK), done.output
    done = users.operator.patch(pod, gone)
    assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", STATE)
def test_a_user_with_every_verb_on_everything_may_not_write_state(
    users: UsersByRight, pod: str, what: str, way: str
) -> None:
    part, key, value = STATE[what]
    done = users.owner.patch(pod, metadata(part, key, value), way)
    assert refused(done, f"metadata.{part}[{key}]: {NEEDS_REPORT}"), done.output


GANGS = {
    "a label": ("labels", keys.POD_GROUP),
    "a label of a LeaderWorkerSet": ("labels", keys.LEADER_WORKER_SET),
    "an annotation": ("annotations", keys.KOORDINATOR_GANG),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("gang", GANGS)
def test_a_user_may_not_move_a_marked_pod_into_a_gang_whose_pods_they_may_not_delete(
    users: UsersByRight, pod: str, gang: str, mark: str, way: str
) -> None:
    """The operator may not have looked yet: the mark would reach that gang."""
    part, key = GANGS[gang]
    joining = metadata(part, key, "theirs")
    assert users.writer.run("patch", "pod", pod, "--dry-run=server", "-p", joining).status == 0
    assert users.admin.patch(pod, metadata(*MARKS[mark])).status == 0
    done = users.writer.patch(pod, joining, way)
    assert refused(
        done, f"metadata.{part}[{key}]: Forbidden: having a marked pod join a gang needs"
    ), done.output
    assert users.writer.patch(pod, metadata(part, "example.com/note", "x"), way).status == 0
    done = users.deleter.patch(pod, joining, way)
    assert done.status == 0, done.output
    assert users.writer.patch(pod, metadata(part, key, None), way).status == 0


AS_A_WHOLE = {keys.DISRUPTION_MODE: "gang"}
MOVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "to a Job's pods, as a whole": (
        {},
        {"labels": {keys.JOB: "theirs"}, "annotations": AS_A_WHOLE},
    ),
    "to a Job's pods as a whole, one after the other": (
        {"labels": {keys.JOB: "theirs"}},
        {"annotations": AS_A_WHOLE},
    ),
    "to another group of a LeaderWorkerSet": (
        {"labels": {keys.LEADER_WORKER_SET: "llm", keys.LEADER_WORKER_GROUP: "0"}},
        {"labels": {keys.LEADER_WORKER_GROUP: "1"}},
    ),
    "to the gang of another key, by leaving its own": (
        {"labels": {keys.POD_GROUP: "mine", keys.KUEUE_GROUP: "theirs"}},
        {"labels": {keys.POD_GROUP: None}},
    ),
}


@pytest.mark.parametrize(("before", "change"), MOVES.values(), ids=MOVES)
def test_a_user_may_not_have_a_marked_pod_go_with_others_by_any_change(
    users: UsersByRight, pod: str, before: dict[str, Any], change: dict[str, Any]
) -> None:
    move = json.dumps({"metadata": change})
    assert users.writer.patch(pod, json.dumps({"metadata": before})).status == 0
    assert users.writer.run("patch", "pod", pod, "--dry-run=server", "-p", move).status == 0
    assert users.admin.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested")).status == 0
    done = users.writer.patch(pod, move)
    assert refused(done, "Forbidden: having a marked pod join a gang needs"), done.output
    assert users.deleter.patch(pod, move).status == 0


def test_a_user_who_may_delete_one_pod_only_may_not_mark_it_as_a_gang_member(
    users: UsersByRight, pod: str
) -> None:
    """A gang is evicted as a whole. Any pod may join it, so the mark would reach pods that the user
    may not delete.
    """
    only = rule("pods", "get patch delete") | {"resourceNames": [pod]}
    users.admin.kubectl.apply(*role("deleter-of-one", NAMESPACE, [only]))
    person = ImpersonatedUser(users.admin.kubectl, "deleter-of-one", NAMESPACE)
    until_answered("deleted", lambda: person.run("delete", "pod", pod, "--dry-run=server"))
    mark = {keys.SOFT_EVICTION: "requested"}
    alone, joined, of_a_job = (
        {"metadata": {"labels": mark | gang}}
        for gang in ({}, {keys.POD_GROUP: "theirs"}, {keys.JOB: "theirs"})
    )
    of_a_job["metadata"]["annotations"] = AS_A_WHOLE
    for marked in (joined, of_a_job):
        text = json.dumps(marked)
        done = person.patch(pod, text)
        assert done.status != 0
        assert f"{NEEDS_DELETE}, and all of its namespace: its gang goes as a whole" in done.output
        assert users.deleter.run("patch", "pod", pod, "--dry-run=server", "-p", text).status == 0
    done = person.patch(pod, json.dumps(alone))
    assert done.status == 0, done.output


@pytest.mark.parametrize("what", STATE)
def test_no_user_may_create_a_pod_with_state(users: UsersByRight, what: str) -> None:
    part, key, value = STATE[what]
    done = users.owner.run("create", "-f", "-", stdin=a_pod("forged", **{part: {key: value}}))
    assert refused(done, NEEDS_REPORT), done.output


def test_no_user_may_add_or_remove_the_finalizer(users: UsersByRight, pod: str) -> None:
    hold, release = (
        '{"metadata":{"finalizers":["reprieve.dev/cleanup"]}}',
        '{"metadata":{"finalizers":null}}',
    )
    assert refused(users.owner.patch(pod, hold), NEEDS_REPORT)
    assert users.operator.patch(pod, hold).status == 0
    assert refused(
        users.owner.patch(pod, release), "metadata.finalizers[reprieve.dev/cleanup]: Forbidden"
    )
    assert users.canceller.patch(pod, release).status == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_user_with_every_verb_on_everything_may_not_cancel_an_eviction(
    users: UsersByRight, pod: str, way: str
) -> None:
    users.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    done = users.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, None), way)
    assert refused(done, f"metadata.labels[{keys.SOFT_EVICTION}]: {NEEDS_CANCEL}"), done.output


def test_a_user_who_may_cancel_removes_marks_and_may_not_set_one(
    users: UsersByRight, pod: str
) -> None:
    assert refused(
        users.canceller.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested")),
        NEEDS_DELETE,
    )
    users.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    done = users.canceller.patch(pod, metadata("labels", keys.SOFT_EVICTION, None))
    assert done.status == 0, done.output


def test_koordinators_mark_may_be_removed_by_those_who_may_set_it_until_the_eviction_begins(
    users: UsersByRight, pod: str
) -> None:
    set_it = metadata(
        "annotations", keys.KOORDINATOR_SOFT_EVICTION, '{"initiator":"koord-descheduler"}'
    )
    take_it = metadata("annotations", keys.KOORDINATOR_SOFT_EVICTION, None)
    assert users.deleter.patch(pod, set_it).status == 0
    assert refused(
        users.writer.patch(pod, take_it),
        "removing a soft-eviction mark needs the right to delete the pod",
    )
    assert users.deleter.patch(pod, take_it).status == 0
    assert users.deleter.patch(pod, set_it).status == 0
    under_way = metadata("annotations", keys.EVICTION, '{"v":1,"id":"x","phase":"hinted"}')
    assert users.operator.patch(pod, under_way).status == 0
    assert refused(users.deleter.patch(pod, take_it), NEEDS_CANCEL)
    assert users.canceller.patch(pod, take_it).status == 0


def test_no_owner_takes_a_mark_back_or_replaces_it_while_it_awaits_the_operator(
    users: UsersByRight, pod: str
) -> None:
    """Without this, an owner who is faster than the operator would hold a preemptor for ever."""
    key = keys.KOORDINATOR_SOFT_EVICTION
    by_the_guard = {
        "labels": {keys.SOFT_EVICTION: "marked"},
        "annotations": {key: '{"initiator":"kube-scheduler"}', keys.PREEMPTOR: "uid-of-high"},
    }
    assert users.admin.patch(pod, json.dumps({"metadata": by_the_guard})).status == 0
    for removed in (None, "false"):
        done = users.owner.patch(pod, metadata("annotations", key, removed))
        assert refused(done, f"metadata.annotations[{key}]: {NEEDS_CANCEL}"), done.output
    done = users.owner.patch(pod, metadata("annotations", key, "unreadable"))
    assert refused(
        done, f"metadata.annotations[{key}]: Forbidden: a soft-eviction mark stays as it is"
    ), done.output
    # The guard may, for another preemptor.
    assert users.admin.patch(pod, metadata("annotations", key, "true")).status == 0
    taken_back = {"labels": {keys.SOFT_EVICTION: None}, "annotations": {key: None}}
    done = users.canceller.patch(pod, json.dumps({"metadata": taken_back}))
    assert done.status == 0, done.output
    done = users.owner.patch(pod, metadata("annotations", key, "true"))
    assert done.status == 0, done.output


def test_a_pod_may_be_marked_again_after_a_cancellation(users: UsersByRight, pod: str) -> None:
    cancelled = {
        "labels": {keys.SOFT_EVICTION: None},
        "annotations": {keys.EVICTION: '{"v":1,"phase":"cancelled"}'},
    }
    users.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    assert users.operator.patch(pod, json.dumps({"metadata": cancelled})).status == 0
    assert users.deleter.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested")).status == 0


def test_the_operator_may_write_every_phase(users: UsersByRight, pod: str) -> None:
    users.deleter.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
    for phase in ("hinted", "checkpointing", "extended", "saved", "terminating"):
        state = {
            "labels": {keys.SOFT_EVICTION: phase},
            "annotations": {keys.EVICTION: f'{{"v":1,"phase":"{phase}"}}'},
        }
        done = users.operator.patch(pod, json.dumps({"metadata": state}))
        assert done.status == 0, done.output


def test_no_user_may_set_an_earlier_phase(users: UsersByRight, pod: str) -> None:
    users.operator.patch(pod, metadata("labels", keys.SOFT_EVICTION, "terminating"))
    done = users.owner.patch(pod, metadata("labels", keys.SOFT_EVICTION, "hinted"))
    assert refused(done, NEEDS_REPORT), done.output


@pytest.mark.parametrize("phase", ["hinted", "saved", "terminating", "spared", "evict"])
def test_who_may_delete_a_pod_may_ask_for_one_that_is_evicted_for_another_reason(
    users: UsersByRight, pod: str, phase: str
) -> None:
    """`reprieve evict` does: the pod may stay after all."""
    users.operator.patch(pod, metadata("labels", keys.SOFT_EVICTION, phase))
    request = metadata("labels", keys.SOFT_EVICTION, "requested")
    assert refused(users.writer.patch(pod, request), NEEDS_DELETE)
    done = users.deleter.patch(pod, request)
    assert done.status == 0, done.output


@pytest.mark.parametrize("marked", [False, True], ids=["ordinary", "marked"])
def test_updates_that_change_no_mark_are_admitted(
    users: UsersByRight, pod: str, *, marked: bool
) -> None:
    if marked:
        users.deleter.patch(pod, metadata("labels", keys.SOFT_EVICTION, "requested"))
        users.operator.patch(
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
        done = users.writer.patch(pod, patch, way)
        assert done.status == 0, done.output


@pytest.fixture
def pod_with_many_finalizers(users: UsersByRight) -> Iterator[str]:
    """Create a pod of 600 KB, nearly all of it finalizers; return its name."""
    name = "many-finalizers"
    # The same one each time: the API server keeps another entry of managedFields for each that
    # differs.
    document = a_pod(name, finalizers=["a/b"] * 120_000)
    created = users.writer.run("create", "-f", "-", stdin=document)
    assert created.status == 0, created.output[:1000]
    yield name
    users.admin.patch(name, '{"metadata":{"finalizers":null}}')
    users.admin.run("delete", "pod", name, "--grace-period=0", "--force")


def test_no_number_of_finalizers_keeps_a_pod_from_being_updated_or_from_the_guard(
    users: UsersByRight, pod_with_many_finalizers: str
) -> None:
    """Without this, a kubelet could not end the pod, which would hold its room for ever: an
    expression that costs too much refuses each update.
    """
    pod = pod_with_many_finalizers
    for patch, way in (
        ('{"status":{"phase":"Succeeded"}}', "status"),
        (metadata("labels", "team", "research"), ""),
    ):
        done = users.writer.patch(pod, patch, way)
        assert done.status == 0, done.output[:1000]
    shown = users.writer.run("get", "pod", pod, "-o", "jsonpath={.status.phase}")
    assert shown.stdout == "Succeeded"
    part, key, value = MARKS["our label"]
    done = users.writer.patch(pod, metadata(part, key, value))
    assert refused(done, f"metadata.{part}[{key}]: {NEEDS_DELETE}"), done.output[:1000]
    held = [{"op": "add", "path": "/metadata/finalizers/-", "value": keys.CLEANUP_FINALIZER}]
    done = users.owner.run("patch", "pod", pod, "--type=json", "-p", json.dumps(held))
    assert refused(done, NEEDS_REPORT), done.output[:1000]


@pytest.mark.parametrize("mark", MARKS | STATE)
def test_a_binding_copies_neither_mark_nor_state_to_the_pod(
    users: UsersByRight, pod: str, mark: str
) -> None:
    part, key, value = (MARKS | STATE)[mark]
    done = bind(users.owner, pod, {part: {key: value}})
    assert refused(done, "a binding may not carry a soft-eviction mark or its state"), done.output
    # Volcano's scheduler copies the pod's own annotations. Its labels are no copies.
    done = bind(users.scheduler, pod, {part: {key: value}})
    assert (done.status == 0) is (part == "annotations"), done.output


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("labels", keys.POD_GROUP),
        ("labels", keys.JOB),
        ("annotations", keys.VOLCANO_GROUP),
        ("annotations", keys.DISRUPTION_MODE),
    ],
)
def test_only_who_may_delete_its_pods_has_a_pod_join_a_gang_by_a_binding(
    users: UsersByRight, pod: str, part: str, key: str
) -> None:
    metadata = {part: {key: "gang"}}
    done = bind(users.writer, pod, metadata)
    assert refused(done, "having a pod join a gang by its binding needs"), done.output
    # As a scheduler may, such as Volcano's, which copies the pod's annotations.
    done = bind(users.deleter, pod, metadata)
    assert done.status == 0, done.output


def test_a_binding_may_have_other_labels(users: UsersByRight, pod: str) -> None:
    done = bind(users.writer, pod, {"labels": {"topology.kubernetes.io/zone": "a"}})
    assert done.status == 0, done.output


def bind(person: ImpersonatedUser, pod: str, metadata: dict[str, Any]) -> Done:
    target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **metadata},
        "target": target,
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding"
    return person.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


RELEASES = {
    "the label": ("labels", keys.GANG_GATE_LABEL, "released"),
    "the time": ("annotations", keys.GANG_RELEASED_AT, "2026-11-21T12:00:00Z"),
}


@pytest.mark.parametrize("way", WAYS, ids=["pod", "status"])
@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_only_reprieve_says_that_a_gang_was_released(
    users: UsersByRight, pod: str, release: tuple[str, str, str], way: str
) -> None:
    refused = users.owner.patch(pod, metadata(*release), way)
    assert refused.status != 0
    assert "a release is written by Reprieve only" in refused.output
    # The operator may not read `pods/status`, as kubectl would.
    assert users.operator.patch(pod, metadata(*release)).status == 0
    removed = users.owner.patch(pod, metadata(*release[:2], None), way)
    assert removed.status == 0, "as a user may remove the gate"


def test_no_pod_is_created_as_released(users: UsersByRight) -> None:
    part, key, value = RELEASES["the label"]
    created = users.owner.run(
        "create", "--dry-run=server", "-f", "-", stdin=a_pod("", **{part: {key: value}})
    )
    assert "a release is written by Reprieve only" in created.output
