"""What a scheduler sends is read as Go writes it, both ways, and the answer is what Go reads."""

import json
from typing import Any

import pytest

from reprieve_webhooks.admission.review import Malformed
from reprieve_webhooks.extender import api
from reprieve_webhooks.extender.api import PreemptionArgs, PreemptionResult

POD = {
    "metadata": {"name": "p", "uid": "p", "creationTimestamp": None},
    "spec": {"containers": []},
    "status": {},
}


def args(**fields: Any) -> bytes:
    without_victims = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    return json.dumps(without_victims | fields).encode()


def whole(*uids: str) -> Any:
    pods = [
        {"metadata": {"name": uid, "uid": uid}, "spec": {"priority": 1, "nodeName": "n"}}
        for uid in uids
    ]
    return {"Pods": pods, "NumPDBViolations": 0}


def meta(*uids: str) -> Any:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1}


PROPOSED = {"one": frozenset("ab"), "two": frozenset("c")}
READ = {
    "with nodeCacheCapable, the call has uids": (
        args(NodeNameToMetaVictims={"one": meta("a", "b"), "two": meta("c")}),
        PROPOSED,
    ),
    "without nodeCacheCapable, the call has whole pods": (
        args(NodeNameToVictims={"one": whole("a", "b"), "two": whole("c")}),
        PROPOSED,
    ),
    "no candidates": (args(), {}),
    "no candidates of either form": (args(NodeNameToVictims={}, NodeNameToMetaVictims={}), {}),
    "a node without victims": (
        args(NodeNameToMetaVictims={"one": {"Pods": None}}),
        {"one": frozenset()},
    ),
    "a node with null": (args(NodeNameToVictims={"one": None}), {"one": frozenset()}),
    "fields of a later version": (
        args(NodeNameToMetaVictims={"one": meta("a")}, Later=[1]),
        {"one": frozenset("a")},
    ),
}


@pytest.mark.parametrize(("body", "proposed"), READ.values(), ids=READ)
def test_candidates_are_read_by_node(body: bytes, proposed: Any) -> None:
    assert api.parse(body) == PreemptionArgs("p", proposed)


DEEP = 14_000
MALFORMED = {
    "nothing": (b"", "not JSON"),
    "half a document": (args()[:40], "not JSON"),
    "not UTF-8": (args().replace(b'"uid": "p"', b'"uid": "\xff"'), "not JSON"),
    "an array": (b"[]", "not ExtenderPreemptionArgs"),
    "no pod": (b"{}", "Pod"),
    "a null pod": (args(Pod=None), "Pod"),
    "a pod without a uid": (args(Pod={"metadata": {}}), "the pod has no uid"),
    "a pod without metadata": (args(Pod={}), "the pod has no uid"),
    "nodes in an array": (args(NodeNameToMetaVictims=[]), "NodeNameToMetaVictims"),
    "victims in an object": (args(NodeNameToVictims={"one": {"Pods": {}}}), "NodeNameToVictims"),
    "a uid that is a number": (args(NodeNameToMetaVictims={"one": {"Pods": [{"UID": 1}]}}), "UID"),
    "arrays within arrays": (b"[" * 40_000, "not"),
    "objects within objects": (
        args(Pod=POD | {"x": 0}).replace(b'"x": 0', b'"x": ' + b'{"a":' * DEEP),
        "not JSON",
    ),
    "very many values": (
        b'{"Pod":{"metadata":{"uid":"x"}},"NodeNameToVictims":{"n":{"Pods":['
        + b"{}," * api.MAX_VALUES
        + b"{}]}}}",
        f"more than {api.MAX_VALUES} values",
    ),
    "very many nodes": (
        b'{"Pod":{"metadata":{"uid":"x"}},"NodeNameToMetaVictims":{'
        + b",".join(b'"%d":{}' % number for number in range(20_001))
        + b"}}",
        "20001 nodes: must be at most 20000",
    ),
    "so many nodes that they are not decoded": (
        b'{"Pod":{"metadata":{"uid":"x"}},"NodeNameToMetaVictims":{'
        + b",".join(b'"%d":0' % number for number in range(api.MAX_VALUES // 2 + 10))
        + b"}}",
        "more than 20000 nodes",
    ),
    "very many brackets": (
        b'{"Pod":{"metadata":{"uid":"x"}},"NodeNameToMetaVictims":{"n":{"Pods":['
        + b"{}," * (api.MAX_VALUES // 2 + 10)
        + b"[]" * (2 * api.MAX_VALUES)
        + b"]}}}",
        f"more than {3 * api.MAX_VALUES} brackets and commas",
    ),
    "a long uid": (args(NodeNameToMetaVictims={"n": meta("x" * 129)}), "length <= 128"),
    "a long uid in a whole pod": (args(NodeNameToVictims={"n": whole("x" * 129)}), "length <= 128"),
    "a long uid of the preemptor": (args(Pod={"metadata": {"uid": "x" * 129}}), "length <= 128"),
    "a long name of a node": (
        args(NodeNameToMetaVictims={"n" * 254: meta("x")}),
        "more than 253 characters",
    ),
    "a review": (b'{"apiVersion":"admission.k8s.io/v1","request":{}}', "Pod"),
}


@pytest.mark.parametrize(("body", "says"), MALFORMED.values(), ids=MALFORMED)
def test_an_unreadable_call_is_answered_in_one_sentence(body: bytes, says: str) -> None:
    found = api.parse(body)
    assert isinstance(found, Malformed)
    assert says in found.detail
    assert len(found.detail) < 200


BOUNDS = {
    "the highest allowed number of nodes": ({"one": "a", "two": "b", "three": ""}, ""),
    "a node too many": (
        {"one": "", "two": "", "three": "", "four": ""},
        "4 nodes: must be at most 3",
    ),
    "the highest allowed number of victims": ({"one": "ab", "two": ""}, ""),
    "a victim too many": ({"one": "a", "two": "abc"}, "3 victims on one node: must be at most 2"),
    "a victim too many, the same one repeatedly": (
        {"one": "aaa"},
        "3 victims on one node: must be at most 2",
    ),
}


@pytest.mark.parametrize("is_whole", [False, True], ids=["uids", "whole pods"])
@pytest.mark.parametrize(("proposed", "says"), BOUNDS.values(), ids=BOUNDS)
def test_a_call_larger_than_any_cluster_is_malformed(
    monkeypatch: pytest.MonkeyPatch,
    proposed: dict[str, str],
    says: str,
    is_whole: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(api, "_MAX_NODES", 3)
    monkeypatch.setattr(api, "_MAX_VICTIMS", 2)
    named = {node: (whole if is_whole else meta)(*uids) for node, uids in proposed.items()}
    found = api.parse(args(**{"NodeNameToVictims" if is_whole else "NodeNameToMetaVictims": named}))
    assert (found.detail if isinstance(found, Malformed) else "").endswith(says)
    assert isinstance(found, Malformed) is bool(says)


def test_a_native_gang_with_a_pod_on_each_node_of_the_largest_cluster_is_accepted() -> None:
    gang = meta(*(f"pod-{number}" for number in range(5_000)))
    assert isinstance(
        api.parse(args(NodeNameToMetaVictims={"one": gang, "two": gang})), PreemptionArgs
    )


def test_the_answer_is_as_go_reads_it() -> None:
    assert json.loads(api.render(PreemptionResult("one", ("a", "b"), 1))) == {
        "NodeNameToMetaVictims": {
            "one": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}
        }
    }


def test_a_result_without_nodes_is_valid() -> None:
    assert api.render(None) == b'{"NodeNameToMetaVictims":{}}'
