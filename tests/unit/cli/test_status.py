"""What `reprieve status` says of a cluster: each row, and what to do."""

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from reprieve_certs.issue import issue_ca
from reprieve_cli.cluster.health import ClusterState, Deployment, Health, StatusRow, build_rows
from reprieve_cli.cluster.installation import Absence, Installation, LeaderStatus, leader_of
from reprieve_cli.commands.status import build_text
from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.values import timestamp
from reprieve_policy.kube.webhook_configurations import (
    Webhook,
    WebhookClientConfig,
    WebhookConfiguration,
    WebhookService,
)
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_runtime.client.api import PartialObjectMetadata
from reprieve_runtime.lease import Lease, LeaseSpec
from reprieve_runtime.policy_config_map import ConfigMap

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
CA = base64.b64encode(issue_ca(NOW).certificate.public_bytes(Encoding.PEM)).decode()
OLD_CA = base64.b64encode(
    issue_ca(NOW - timedelta(days=20_000)).certificate.public_bytes(Encoding.PEM)
).decode()


def a_configuration(path: str = "/guard/secret", ca: str | None = CA) -> WebhookConfiguration:
    service = WebhookService(namespace="reprieve-system", path=path)
    config = WebhookClientConfig(service=service, caBundle=ca)
    return WebhookConfiguration(
        metadata=ObjectMeta(), webhooks=[Webhook(name="w", clientConfig=config)]
    )


def a_deployment(image: str = "reprieve:0.1.0", ready: int = 2) -> Deployment:
    return msgspec.convert(
        {
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}},
            "status": {"readyReplicas": ready},
        },
        Deployment,
    )


def a_victim(
    phase: Phase = Phase.HINTED, *, late_by: int = -60, **metadata: Any
) -> PartialObjectMetadata:
    state = eviction.Eviction(
        eviction_id="e1",
        phase=phase,
        requested_at=NOW - timedelta(hours=1),
        deadline=NOW - timedelta(seconds=late_by),
    )
    return PartialObjectMetadata(
        metadata=ObjectMeta(
            namespace="team",
            name="p",
            uid="u",
            labels={keys.SOFT_EVICTION: phase},
            annotations={keys.EVICTION: eviction.render(state)},
            **metadata,
        )
    )


def a_held_pod(name: str, *finalizers: str) -> PartialObjectMetadata:
    metadata = ObjectMeta(namespace="kube-system", name=name, finalizers=finalizers)
    return PartialObjectMetadata(metadata=metadata)


INSTALLATION = Installation(
    namespace="reprieve-system",
    mutating=a_configuration("/mutate"),
    leader=LeaderStatus(holder="operator-1", renewed_at=NOW - timedelta(seconds=3)),
)
STATE = ClusterState(
    installation=INSTALLATION,
    validating=a_configuration(),
    operator=a_deployment(),
    webhooks=a_deployment(),
    policy=ConfigMap(data={"quotaFit": "warn"}),
    victims=(),
    untouched=(),
)


def row_of(state: ClusterState, subject: str) -> StatusRow:
    return next(row for row in build_rows(state, NOW) if row.subject == subject)


def test_a_cluster_in_which_all_is_well() -> None:
    rows = build_rows(replace(STATE, victims=[a_victim(), a_victim(Phase.FINISHED)]), NOW)
    assert {row.health for row in rows} == {Health.OK}
    assert all(row.advice == "" for row in rows)
    assert [(row.subject, row.detail) for row in rows if row.subject != "certificates"] == [
        ("installed", "in namespace reprieve-system"),
        ("versions", "reprieve:0.1.0"),
        ("leader", "operator-1, renewed its Lease 3s ago"),
        ("webhooks", "2 of 2 replicas ready"),
        ("guard", "reviews deletions by schedulers, and evictions"),
        ("policy", "valid"),
        ("victims", "1 hinted"),
    ]
    assert row_of(STATE, "certificates").detail.startswith("the CA is valid until 20")
    assert row_of(STATE, "victims").detail == "none"


class Case(NamedTuple):
    """A state, and the row that it changes."""

    state: ClusterState
    subject: str
    health: Health
    detail: str


def installed(**fields: Any) -> ClusterState:
    return replace(STATE, installation=replace(INSTALLATION, **fields))


def installed_without_webhooks() -> ClusterState:
    nothing = replace(a_configuration(), webhooks=())
    return replace(installed(mutating=nothing), validating=nothing)


NOT_FOUND, FORBIDDEN = Absence.NOT_FOUND, Absence.FORBIDDEN
PROBLEM, UNKNOWN = Health.PROBLEM, Health.UNKNOWN

CASES: dict[str, Callable[[], Case]] = {
    "a missing configuration": lambda: Case(
        installed(mutating=NOT_FOUND), "installed", PROBLEM, "a webhook configuration is missing"
    ),
    "configurations that may not be read": lambda: Case(
        replace(STATE, validating=FORBIDDEN), "installed", UNKNOWN, "you may not read the webhook"
    ),
    "their certificates": lambda: Case(
        replace(STATE, validating=FORBIDDEN), "certificates", UNKNOWN, "you may not read"
    ),
    "the guard in them": lambda: Case(
        replace(STATE, validating=FORBIDDEN), "guard", UNKNOWN, "you may not read"
    ),
    "no guard without its configuration": lambda: Case(
        replace(STATE, validating=NOT_FOUND), "guard", PROBLEM, "not configured"
    ),
    "no guard in the configuration": lambda: Case(
        replace(STATE, validating=a_configuration("/validate")), "guard", PROBLEM, "not configured"
    ),
    "a guard without its secret path": lambda: Case(
        replace(STATE, validating=a_configuration("/guard")), "guard", PROBLEM, "the webhooks have"
    ),
    "two versions": lambda: Case(
        replace(STATE, webhooks=a_deployment("reprieve:0.2.0")),
        "versions",
        PROBLEM,
        "operator reprieve:0.1.0, webhooks reprieve:0.2.0",
    ),
    "no operator": lambda: Case(
        replace(STATE, operator=NOT_FOUND), "versions", PROBLEM, "no deployment/reprieve-operator"
    ),
    "Deployments that may not be read": lambda: Case(
        replace(STATE, operator=FORBIDDEN), "versions", UNKNOWN, "you may not read the Deployments"
    ),
    "no Lease": lambda: Case(installed(leader=NOT_FOUND), "leader", PROBLEM, "no operator leads"),
    "a Lease that ran out": lambda: Case(
        installed(leader=LeaderStatus(renewed_at=NOW - timedelta(minutes=5))),
        "leader",
        PROBLEM,
        "no operator leads; the Lease was renewed 5m ago",
    ),
    "a Lease that may not be read": lambda: Case(
        installed(leader=FORBIDDEN), "leader", UNKNOWN, "you may not read the operator's Lease"
    ),
    "no webhook that answers": lambda: Case(
        replace(STATE, webhooks=a_deployment(ready=0)), "webhooks", PROBLEM, "0 of 2 replicas ready"
    ),
    "no webhooks": lambda: Case(
        replace(STATE, webhooks=NOT_FOUND), "webhooks", PROBLEM, "their Deployment does not exist"
    ),
    "webhooks that may not be read": lambda: Case(
        replace(STATE, webhooks=FORBIDDEN), "webhooks", UNKNOWN, "you may not read"
    ),
    "a webhook without a CA": lambda: Case(
        replace(STATE, validating=a_configuration(ca=None)),
        "certificates",
        PROBLEM,
        "1 of 2 webhooks have no caBundle",
    ),
    "configurations without webhooks": lambda: Case(
        installed_without_webhooks(), "certificates", PROBLEM, "no webhook is registered"
    ),
    "a CA that has expired": lambda: Case(
        replace(STATE, validating=a_configuration(ca=OLD_CA)),
        "certificates",
        PROBLEM,
        "the CA expired at ",
    ),
    "a CA that is no certificate": lambda: Case(
        replace(STATE, validating=a_configuration(ca="!")),
        "certificates",
        PROBLEM,
        "a caBundle cannot be read",
    ),
    "a policy with a mistake": lambda: Case(
        replace(STATE, policy=ConfigMap(data={"quotaFit": "maybe"})),
        "policy",
        PROBLEM,
        "data[quotaFit]: ",
    ),
    "no policy": lambda: Case(
        replace(STATE, policy=NOT_FOUND),
        "policy",
        Health.OK,
        "no ConfigMap: the default of every setting",
    ),
    "a policy that may not be read": lambda: Case(
        replace(STATE, policy=FORBIDDEN), "policy", UNKNOWN, "you may not read"
    ),
    "pods that may not be read": lambda: Case(
        replace(STATE, victims=FORBIDDEN), "victims", UNKNOWN, "you may not read the pods"
    ),
    "a victim past its deadline": lambda: Case(
        replace(STATE, victims=[a_victim(late_by=600)]),
        "stuck",
        PROBLEM,
        "team/p: hinted, 10m past its deadline",
    ),
    "a pod past its grace period": lambda: Case(
        replace(
            STATE,
            victims=[
                a_victim(
                    Phase.TERMINATING,
                    deletionTimestamp="2026-11-24T09:00:00Z",
                    finalizers=["example.com/a"],
                )
            ],
        ),
        "stuck",
        PROBLEM,
        "team/p: its grace period ended 3h ago (example.com/a)",
    ),
    "pods of kube-system that an earlier version marked": lambda: Case(
        replace(STATE, untouched=[a_held_pod("dns", keys.CLEANUP_FINALIZER), a_held_pod("proxy")]),
        "held",
        PROBLEM,
        "kube-system/dns: the finalizer reprieve.dev/cleanup of an earlier version",
    ),
    "many of them": lambda: Case(
        replace(STATE, victims=[a_victim(late_by=600)] * 7),
        "stuck",
        PROBLEM,
        "team/p: hinted, 10m past its deadline; ",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named_with_what_to_do(name: str) -> None:
    case = CASES[name]()
    row = row_of(case.state, case.subject)
    assert (row.health, row.detail[: len(case.detail)]) == (case.health, case.detail)
    assert row.health is Health.OK or row.advice or "does not exist" in row.detail


@pytest.mark.parametrize("deletion", [None, "2026-11-24T12:00:00Z"])
def test_a_victim_that_is_in_time_is_not_stuck(deletion: str | None) -> None:
    state = replace(STATE, victims=[a_victim(deletionTimestamp=deletion)])
    assert [row.subject for row in build_rows(state, NOW)][-1] == "victims"


def test_pods_of_kube_system_without_our_finalizer_are_not_named() -> None:
    for untouched in ([a_held_pod("dns", "example.com/a")], FORBIDDEN):
        rows = build_rows(replace(STATE, untouched=untouched), NOW)
        assert [row.subject for row in rows][-1] == "victims"


def test_the_advice_for_a_pod_of_kube_system_is_the_command_that_frees_it() -> None:
    state = replace(STATE, untouched=[a_held_pod("dns", keys.CLEANUP_FINALIZER)])
    assert row_of(state, "held").advice == "reprieve cleanup -n kube-system --force"


def test_where_reprieve_is_not_installed_nothing_else_is_said() -> None:
    state = replace(installed(mutating=NOT_FOUND, leader=NOT_FOUND), validating=NOT_FOUND)
    (row,) = build_rows(state, NOW)
    assert (row.subject, row.health, row.detail) == ("installed", PROBLEM, "no")


def test_the_text_has_the_advice_below_its_row() -> None:
    state = installed(leader=NOT_FOUND)
    lines = build_text(build_rows(state, NOW))
    number = next(i for i, line in enumerate(lines) if line.startswith("leader"))
    assert "no operator leads" in lines[number]
    assert lines[number + 1].split()[:4] == ["->", "kubectl", "get", "pods"]


@pytest.mark.parametrize(
    ("identity", "renewed", "holder"),
    [("a", NOW - timedelta(seconds=10), "a"), ("a", NOW - timedelta(minutes=1), ""), ("", NOW, "")],
)
def test_a_leader_is_one_that_renews_its_lease(
    identity: str, renewed: datetime, holder: str
) -> None:
    spec = LeaseSpec(
        holderIdentity=identity, renewTime=timestamp.render(renewed), leaseDurationSeconds=15
    )
    assert leader_of(Lease(spec=spec), NOW).holder == holder
    assert leader_of(Lease(), NOW).holder == ""


@pytest.mark.parametrize(
    ("name", "failure_policy", "advice"),
    [
        ("pods.reprieve.dev", "Ignore", "new claims to be non-preemptible are refused"),
        ("claims.reprieve.dev", "Fail", "new claims to be non-preemptible are refused"),
        ("pods.reprieve.dev", "Fail", "all new pods are refused, but those of kube-system"),
    ],
)
def test_an_outage_of_the_webhooks_says_what_is_refused_meanwhile(
    name: str, failure_policy: str, advice: str
) -> None:
    webhook = Webhook(name=name, failurePolicy=failure_policy)
    configuration = replace(a_configuration(), webhooks=[webhook])
    state = replace(STATE, webhooks=a_deployment(ready=0), validating=configuration)
    assert advice in row_of(state, "webhooks").advice
