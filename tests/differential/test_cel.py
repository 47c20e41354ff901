"""The same objects through both engines: the rules in Python, and the policies made from them.

Both come from the same table. The policies run in the real API server; every request is a dry run.
Both must give the same verdict, in the same words after the API server's own prefix, and fill in
the same defaults.
"""

import asyncio
import itertools
import json
import re
import ssl
from base64 import b64decode
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.admission import review
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.cel import policies
from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import ENFORCE, OFF, WARN
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.objects import generated_metadata
from reprieve_testing.objects.generated_metadata import Metadata

pytestmark = pytest.mark.cluster

Json = Any
BATCH, BATCHES_OF_PODS, BATCHES_OF_CLASSES = 25, 70, 15
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failure names each differing case already, and shrinking to a smaller batch would take
minutes.
"""
RULES_OF = {
    kind: tuple(rule for rule in rules if rule.id in policies.RULES)
    for kind, rules in review._RULES_OF.items()
}
"""In both installations, only the webhooks apply the other rules to the object."""
NAMESPACES: dict[str, Metadata] = {
    "silent": Metadata({}, {}),
    "listed": Metadata({}, {keys.ALLOWED_PREEMPTION_CLASSES: "0-2, 5,9"}),
    "listed-at-length": Metadata({}, {keys.ALLOWED_PREEMPTION_CLASSES: "0," * 255 + "9"}),
    "listed-too-long": Metadata({}, {keys.ALLOWED_PREEMPTION_CLASSES: "0," * 100_000 + "9"}),
    "sensitive": Metadata(
        {}, {keys.WORKLOAD_TYPE: "sensitive", keys.ALLOWED_PREEMPTION_CLASSES: "0-10"}
    ),
    "all": Metadata(
        {}, {keys.ALLOWED_PREEMPTION_CLASSES: "0-10", keys.DEFAULT_PREEMPTION_CLASS: "8"}
    ),
    "typed": Metadata({}, {keys.WORKLOAD_TYPE: "service", keys.DEFAULT_PREEMPTION_CLASS: "7"}),
    "unreadable": Metadata(
        {keys.ENFORCEMENT: "maybe"},
        {
            keys.ALLOWED_PREEMPTION_CLASSES: "6-0",
            keys.WORKLOAD_TYPE: "x",
            keys.DEFAULT_PREEMPTION_CLASS: "high",
        },
    ),
    "warned": Metadata({}, {keys.ENFORCEMENT: WARN}),
    "listed-and-warned": Metadata(
        {}, {keys.ENFORCEMENT: WARN, keys.ALLOWED_PREEMPTION_CLASSES: "0-2"}
    ),
    "warned-by-label": Metadata({keys.ENFORCEMENT: WARN}, {keys.ENFORCEMENT: OFF}),
    "enforced-by-label": Metadata({keys.ENFORCEMENT: ENFORCE}, {keys.ENFORCEMENT: OFF}),
    "off": Metadata({}, {keys.ENFORCEMENT: OFF}),
    "off-by-label": Metadata({keys.ENFORCEMENT: OFF}, {keys.ENFORCEMENT: ENFORCE}),
}
KIND_NAMES = (
    "Pod",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "ReplicationController",
    "CronJob",
)
SETTINGS = PolicySettings(default_can_preempt=False)
OLD_CLASS_VALUE = 1000
DENIED = re.compile(r"denied request: (.*)", re.DOTALL)
WARNED = re.compile(
    r'299 - "Validation failed for ValidatingAdmissionPolicy \S+ with binding \S+: (.*)"', re.DOTALL
)


@dataclass(frozen=True)
class Case:
    """An object as it is to be, and as it was: `None` where it is created."""

    kind: str
    namespace: str
    new: Metadata
    old: int | None = None


@dataclass(frozen=True)
class Answer:
    """An engine's answer: a refusal's text, warnings, and the defaults of the admitted object."""

    refusal: str | None
    warnings: frozenset[str]
    defaults: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class OldObject:
    """An object that existed before the policies."""

    name: str
    document: Json
    said: Metadata


OLD_COUNT = 6
OLD_OF_PODS = (
    Metadata({}, {}),
    Metadata({keys.PREEMPTION_CLASS: "4", keys.PREEMPTIBLE: "true"}, {keys.CHECKPOINT: "none"}),
    Metadata(
        {keys.PREEMPTION_CLASS: "9", keys.PREEMPTIBLE: "false"}, {keys.CHECKPOINT_TIMEOUT: "2h"}
    ),
    Metadata(
        {keys.PREEMPTION_CLASS: "high", keys.CAN_PREEMPT: "yes"},
        {keys.CHECKPOINT_HINT: "grpc://:1"},
    ),
    Metadata({keys.PREEMPTION_CLASS: "0"}, {keys.MAX_DEFERRAL: "soon", keys.REQUEUE: "x" * 70}),
    Metadata(
        {keys.PREEMPTION_CLASS: "10"}, {keys.REQUEUE: "never", keys.ESTIMATED_CHECKPOINT_TIME: "0s"}
    ),
)
_NEW, _SECONDS = (
    keys.TOLERATION_PREFIX + name for name in ("minimum-preemptable-priority", "toleration-seconds")
)
_OLD, _OLD_SECONDS = (
    keys.OLD_TOLERATION_PREFIX + name
    for name in ("minimum-preemptable-priority", "toleration-seconds")
)
OLD_OF_PRIORITY_CLASSES = (
    Metadata({}, {}),
    Metadata({}, {_NEW: "2000", _SECONDS: "60"}),
    Metadata({}, {_NEW: "1", _SECONDS: "1h"}),
    Metadata({}, {_NEW: "2000", _OLD: "3000", _OLD_SECONDS: "soon"}),
    Metadata({}, {_NEW: "2000", _OLD: "2000", keys.DEFAULT_PREEMPTION_CLASS: "11"}),
    Metadata({}, {_OLD_SECONDS: "9223372037"}),
)


def pod_cases() -> st.SearchStrategy[Case]:
    """Return cases of pods and of what makes them."""
    pods = st.tuples(st.just("Pod"), generated_metadata.pod_metadata)
    templates = st.tuples(st.sampled_from(KIND_NAMES[1:]), generated_metadata.template_metadata)
    old = st.none() | st.none() | st.integers(0, OLD_COUNT - 1)
    return st.builds(
        lambda told, place, old: Case(told[0], place, told[1], old),
        pods | templates,
        st.sampled_from(list(NAMESPACES)),
        old,
    ).filter(may_change)


def priority_class_cases() -> st.SearchStrategy[Case]:
    """Return cases of PriorityClasses."""
    old = st.none() | st.integers(0, OLD_COUNT - 1)
    return st.builds(
        lambda told, old: Case("PriorityClass", "", told, old),
        generated_metadata.priority_class_metadata,
        old,
    )


def may_change(case: Case) -> bool:
    """False for a Job that exists: the API server keeps its template as it is."""
    return case.old is None or case.kind != "Job"


def a_document(kind: str, name: str, told: Metadata) -> Json:
    """Return an object of `kind` with this metadata; no scheduler or controller acts on it."""
    if kind == "PriorityClass":
        metadata = {"name": name, **told.as_json()}
        return {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": kind,
            "metadata": metadata,
            "value": OLD_CLASS_VALUE,
        }
    row = KINDS[kind]
    pod = {
        "schedulerName": "nobody",
        "nodeSelector": {"no": "where"},
        "containers": [{"name": "main", "image": "none"}],
    }
    if kind in ("Job", "CronJob"):
        pod["restartPolicy"] = "Never"
    selected = {"app": "differential"}
    template = {"metadata": told.as_json(), "spec": pod}
    if kind not in ("Pod", "Job", "CronJob"):
        template["metadata"]["labels"] |= selected
    spec: Json = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": spec}}
    elif kind == "Job":
        spec["suspend"] = True
    elif kind != "Pod":
        spec["selector"] = (
            selected if kind == "ReplicationController" else {"matchLabels": selected}
        )
        if kind != "DaemonSet":
            spec["replicas"] = 0
    group = f"{row.group}/" if row.group else ""
    document = {
        "apiVersion": group + row.versions[0],
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    return (
        document | {"metadata": {"name": name, **told.as_json()}, "spec": pod}
        if kind == "Pod"
        else document
    )


class Engines:
    """Both of them, on one cluster."""

    def __init__(self, cluster: ClusterHandle) -> None:
        config = json.loads(cluster.cluster.kubeconfig.read_text())
        authority = b64decode(
            config["clusters"][0]["cluster"]["certificate-authority-data"]
        ).decode()
        self.server = config["clusters"][0]["cluster"]["server"]
        self.tls = ssl.create_default_context(cadata=authority)
        self.headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self.kubectl = cluster.kubectl
        self.names = itertools.count()
        self.facts = {
            name: Facts(
                settings=SETTINGS, namespace=namespace.read_leniently(told.labels, told.annotations)
            )
            for name, told in NAMESPACES.items()
        } | {"": Facts(settings=SETTINGS)}

    def install(self) -> None:
        """Create the Namespaces and old objects, then the policies: the order in a cluster's
        life.
        """
        documents = policies.render(SETTINGS)
        self.kubectl.read("delete", "--ignore-not-found", "-f", "-", stdin=_list(documents))
        asyncio.run(self.make_old_objects())
        for document in documents:
            if "failurePolicy" in document["spec"]:
                # An error in an expression must be seen.
                document["spec"]["failurePolicy"] = "Fail"
        self.kubectl.apply(*documents)
        self.wait_in_force()

    async def make_old_objects(self) -> None:
        """Create the objects that exist before the policies; a kept cluster has them already."""
        async with aiohttp.ClientSession(self.server, headers=self.headers) as session:

            async def make(path: str, document: Json) -> None:
                async with session.post(path, json=document, ssl=self.tls) as response:
                    assert response.status in (201, 409), await response.text()

            for name, told in NAMESPACES.items():
                await make("/api/v1/namespaces", {"metadata": {"name": name, **told.as_json()}})
                await make(
                    f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}}
                )
            places = [(kind, name) for kind in KIND_NAMES if kind != "Job" for name in NAMESPACES]
            for kind, place in [*places, ("PriorityClass", "")]:
                await asyncio.gather(
                    *(make(_path(kind, place), old.document) for old in self.olds(kind))
                )

    def olds(self, kind: str) -> list[OldObject]:
        """Return the objects of `kind` that existed before."""
        metadata = OLD_OF_PRIORITY_CLASSES if kind == "PriorityClass" else OLD_OF_PODS
        names = [f"differential-old-{number}" for number in range(OLD_COUNT)]
        return [
            OldObject(name, a_document(kind, name, said), said)
            for name, said in zip(names, metadata, strict=True)
        ]

    def wait_in_force(self) -> None:
        """Wait until each policy answers."""
        bad = Metadata({keys.PREEMPTION_CLASS: "high"}, {})
        half = Metadata({}, {_SECONDS: "1h", _OLD: "1"})
        probes = [Case(kind, place, bad) for kind in KIND_NAMES for place in ("silent", "warned")]
        probes += [Case("Pod", "silent", Metadata({}, {})), Case("PriorityClass", "", half)]
        wait_for("all policies are in force", lambda: not asyncio.run(self.differing(probes)), 60)

    async def differing(self, cases: list[Case]) -> list[tuple[Case, Answer, Answer]]:
        """Return the cases on which the engines differ, with both answers; all requests run at
        once.
        """
        async with aiohttp.ClientSession(self.server, headers=self.headers) as session:
            answers = await asyncio.gather(*(self.ask(session, case) for case in cases))
        wanted = [self.decide(case) for case in cases]
        return [found for found in zip(cases, wanted, answers, strict=True) if found[1] != found[2]]

    async def ask(self, session: aiohttp.ClientSession, case: Case) -> Answer:
        """Return the API server's answer, with the policies installed."""
        path = _path(case.kind, case.namespace)
        headers = {"Content-Type": "application/json"}
        method, body = "POST", self.document(case)
        if case.old is not None:
            headers = {"Content-Type": "application/json-patch+json"}
            method, path, body = (
                "PATCH",
                f"{path}/{body['metadata']['name']}",
                _patch(case.kind, body),
            )
        async with session.request(
            method, f"{path}?dryRun=All", data=json.dumps(body), headers=headers, ssl=self.tls
        ) as response:
            answered = await response.json()
            warnings = [
                found[1]
                for text in response.headers.getall("Warning", [])
                if (found := WARNED.match(text))
            ]
        shown = frozenset(re.sub(r"\\(.)", r"\1", text) for text in warnings)
        if response.status < 300:
            return Answer(None, shown, _defaults(case, answered))
        found = DENIED.search(answered["message"]) if response.status == 422 else None
        return Answer(found[1] if found else f"the API server's own: {answered['message']}", shown)

    def decide(self, case: Case) -> Answer:
        """Return the answer of the rules in Python."""
        facts = self.facts[case.namespace]
        mode = facts.namespace.enforcement
        document = self.document(case)
        new = msgspec.convert(document, Resource)
        old = (
            None
            if case.old is None
            else msgspec.convert(self.olds(case.kind)[case.old].document, Resource)
        )
        changes = decide_defaults(new, old, facts)
        for change in changes:
            document["metadata"].setdefault(change.field, {})[change.key] = change.value
        new = msgspec.convert(document, Resource)
        strict = replace(facts, namespace=replace(facts.namespace, enforcement=ENFORCE))
        with patch.dict(review._RULES_OF, RULES_OF):
            verdict = decide_admission(new, old, strict)
        text = None if verdict.is_allowed else verdict.message
        if mode == OFF:
            return Answer(None, frozenset(), _defaults(case, document))
        says_nothing_new = _told(new) == (_told(old) if old is not None else [])
        warnings = frozenset() if says_nothing_new else frozenset(verdict.warnings)
        if text is not None and mode == ENFORCE:
            return Answer(text, warnings)
        shown = warnings if text is None else warnings | {text}
        return Answer(None, shown, _defaults(case, document))

    def document(self, case: Case) -> Json:
        """Return the object that is sent."""
        if case.old is None:
            return a_document(case.kind, f"differential-{next(self.names)}", case.new)
        return deepcopy(a_document(case.kind, self.olds(case.kind)[case.old].name, case.new))


def _path(kind: str, place: str) -> str:
    row = KINDS[kind]
    prefix = f"/apis/{row.group}/{row.versions[0]}" if row.group else "/api/v1"
    return f"{prefix}/namespaces/{place}/{row.resource}" if place else f"{prefix}/{row.resource}"


def _patch(kind: str, document: Json) -> Json:
    """Return the JSON patch that gives an object the metadata of `document`, and changes nothing
    else.
    """
    row = KINDS[kind]
    steps = [step for step in (row.template or "").split(".") if step]
    metadata = document
    for step in steps:
        metadata = metadata[step]
    path = "/".join(["", *steps, "metadata"])
    parts = ("labels", "annotations")
    return [
        {"op": "add", "path": f"{path}/{part}", "value": metadata["metadata"][part]}
        for part in parts
    ]


def _told(resource: Resource) -> list[tuple[str, str]]:
    """Return the metadata that rules read: where it does not change, neither engine is called."""
    views = [(view.labels, view.annotations) for view in pod_views(resource)]
    parts = views or [(resource.metadata.labels or {}, resource.metadata.annotations or {})]
    return sorted(
        item for view in parts for part in view for item in part.items() if item[0] != "app"
    )


def _defaults(case: Case, document: Json) -> tuple[tuple[str, str | None], ...]:
    """Return the values that our defaults may set.

    The API server itself copies a Job's labels from its template, so only our defaults are
    compared.
    """
    if case.old is not None or case.kind not in ("Pod", "PriorityClass"):
        return ()
    metadata = document["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    defaults = [
        (key, labels.get(key))
        for key in (keys.PREEMPTION_CLASS, keys.PREEMPTIBLE, keys.CAN_PREEMPT)
    ]
    return (*defaults, *((key, annotations.get(key)) for key in (_NEW, _SECONDS)))


def _list(items: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


@pytest.fixture(scope="module")
def engines(cluster: ClusterHandle) -> Engines:
    engines = Engines(cluster)
    engines.install()
    return engines


@settings(
    max_examples=BATCHES_OF_PODS,
    phases=NO_SHRINKING,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(pod_cases(), min_size=BATCH, max_size=BATCH))
def test_both_engines_decide_alike_about_pods_and_templates(
    engines: Engines, cases: list[Case]
) -> None:
    assert asyncio.run(engines.differing(cases)) == []


@settings(
    max_examples=BATCHES_OF_CLASSES,
    phases=NO_SHRINKING,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(priority_class_cases(), min_size=BATCH, max_size=BATCH))
def test_both_engines_decide_alike_about_priority_classes(
    engines: Engines, cases: list[Case]
) -> None:
    assert asyncio.run(engines.differing(cases)) == []
