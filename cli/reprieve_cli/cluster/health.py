# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""What `reprieve status` says of what it has read: one row a subject, with what to do. No I/O."""

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reprieve_certs.trust import ca_expires_at
from reprieve_policy import keys
from reprieve_policy.config.effective import EffectivePolicy, decide_effective_policy
from reprieve_policy.config.namespace import UNTOUCHED
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.values import timestamp
from reprieve_policy.kube.webhook_configurations import Webhook, WebhookConfiguration
from reprieve_runtime.client.api import PartialObjectMetadata
from reprieve_runtime.policy_config_map import ConfigMap

from . import victims
from .installation import Absence, Installation

_STUCK_AFTER = timedelta(seconds=60)
"""As the operator counts `reprieve_stuck_victims`."""
_GUARD_PATH = "/guard"
_POD_WEBHOOK = "pods.reprieve.dev"
_ADMITS_UNCHECKED = (
    "new claims to be non-preemptible are refused and all else is admitted unchecked"
)
_REFUSES_PODS = (
    "all new pods are refused, but those of kube-system, of Reprieve and of namespaces with "
    'reprieve.dev/enforcement: "off" (failurePolicy: Fail)'
)
_SHOWN = 5


class Health(StrEnum):
    """What a row says."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """You may not read what it depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRow:
    """One subject. `advice` says what to do; empty if nothing is to do."""

    subject: str
    health: Health
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Container:
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodSpec:
    containers: Sequence[_Container] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    spec: _PodSpec = field(default_factory=_PodSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeploymentSpec:
    replicas: int = 1
    template: _Template = field(default_factory=_Template)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeploymentStatus:
    readyReplicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The fields of a Deployment that are shown."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _DeploymentSpec = field(default_factory=_DeploymentSpec)
    status: _DeploymentStatus = field(default_factory=_DeploymentStatus)

    @property
    def image(self) -> str:
        """The image of its first container."""
        containers = self.spec.template.spec.containers
        return containers[0].image if containers else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What was read; an `Absence` for what was not."""

    installation: Installation
    validating: WebhookConfiguration | Absence
    operator: Deployment | Absence
    webhooks: Deployment | Absence
    policy: ConfigMap | Absence
    victims: Sequence[PartialObjectMetadata] | Absence
    untouched: Sequence[PartialObjectMetadata] | Absence
    """The pods of kube-system."""


def build_rows(state: ClusterState, now: datetime) -> list[StatusRow]:
    """Return the rows; only the first if Reprieve is not installed."""
    installed = _installed(state)
    if state.installation.is_absent and state.validating is Absence.NOT_FOUND:
        return [installed]
    return [
        installed,
        _versions(state),
        _leader(state, now),
        _webhooks(state),
        _certificates(state, now),
        _guard(state.validating),
        _policy(state.policy),
        *_victims(state.victims, now),
        *_held(state.untouched),
    ]


def _installed(state: ClusterState) -> StatusRow:
    found = (state.installation.mutating, state.validating)
    namespace = state.installation.namespace
    if Absence.NOT_FOUND in found:
        is_absent = state.installation.is_absent and state.validating is Absence.NOT_FOUND
        return StatusRow(
            subject="installed",
            health=Health.PROBLEM,
            detail="no" if is_absent else "a webhook configuration is missing",
            advice="apply the manifests (kubectl apply -k manifests/base)",
        )
    if Absence.FORBIDDEN in found:
        return _unknown("installed", "the webhook configurations")
    return StatusRow(subject="installed", health=Health.OK, detail=f"in namespace {namespace}")


def _versions(state: ClusterState) -> StatusRow:
    both = (state.operator, state.webhooks)
    if Absence.FORBIDDEN in both:
        return _unknown("versions", "the Deployments")
    if Absence.NOT_FOUND in both:
        names = ("reprieve-operator", "reprieve-webhooks")
        missing = [
            name for name, each in zip(names, both, strict=True) if each is Absence.NOT_FOUND
        ]
        return StatusRow(
            subject="versions",
            health=Health.PROBLEM,
            detail=f"no deployment/{' and no deployment/'.join(missing)}",
            advice="apply the manifests (kubectl apply -k manifests/base)",
        )
    images = [each.image for each in both if isinstance(each, Deployment)]
    if len(set(images)) > 1:
        return StatusRow(
            subject="versions",
            health=Health.PROBLEM,
            detail=f"operator {images[0]}, webhooks {images[1]}",
            advice="both programs must be of one version: apply the manifests again",
        )
    return StatusRow(subject="versions", health=Health.OK, detail=images[0])


def _leader(state: ClusterState, now: datetime) -> StatusRow:
    leader, namespace = state.installation.leader, state.installation.namespace
    if leader is Absence.FORBIDDEN:
        return _unknown("leader", "the operator's Lease")
    if isinstance(leader, Absence) or not leader.holder:
        renewed = None if isinstance(leader, Absence) else leader.renewed_at
        since = "" if renewed is None else f"; the Lease was renewed {_age(renewed, now)} ago"
        return StatusRow(
            subject="leader",
            health=Health.PROBLEM,
            detail=f"no operator leads{since}",
            advice=f"kubectl get pods -n {namespace}; victims wait until an operator leads",
        )
    renewed = leader.renewed_at or now
    return StatusRow(
        subject="leader",
        health=Health.OK,
        detail=f"{leader.holder}, renewed its Lease {_age(renewed, now)} ago",
    )


def _webhooks(state: ClusterState) -> StatusRow:
    found = state.webhooks
    if isinstance(found, Absence):
        return (
            _unknown("webhooks", "their Deployment")
            if found is Absence.FORBIDDEN
            else StatusRow(
                subject="webhooks", health=Health.PROBLEM, detail="their Deployment does not exist"
            )
        )
    ready, wanted = found.status.readyReplicas, found.spec.replicas
    is_down = ready == 0
    meanwhile = _REFUSES_PODS if _refuses_pods(state) else _ADMITS_UNCHECKED
    return StatusRow(
        subject="webhooks",
        health=Health.PROBLEM if is_down else Health.OK,
        detail=f"{ready} of {wanted} replicas ready",
        advice=(
            f"kubectl describe pods -n {state.installation.namespace}; until a replica is ready, "
            f"{meanwhile}"
            if is_down
            else ""
        ),
    )


def _refuses_pods(state: ClusterState) -> bool:
    """Whether an outage of the webhooks refuses each new pod (`failurePolicy: Fail`)."""
    return any(
        webhook.name == _POD_WEBHOOK and webhook.failurePolicy == "Fail"
        for webhook in _registered(state)
    )


def _registered(state: ClusterState) -> list[Webhook]:
    """Return the webhooks of the configurations that can be read."""
    return [
        webhook
        for each in (state.installation.mutating, state.validating)
        if isinstance(each, WebhookConfiguration)
        for webhook in each.webhooks or ()
    ]


def _certificates(state: ClusterState, now: datetime) -> StatusRow:
    if Absence.FORBIDDEN in (state.installation.mutating, state.validating):
        return _unknown("certificates", "the webhook configurations")
    bundles = [_decode(webhook.clientConfig.caBundle) for webhook in _registered(state)]
    if not bundles:
        return StatusRow(
            subject="certificates",
            health=Health.PROBLEM,
            detail="no webhook is registered",
            advice="apply the manifests (kubectl apply -k manifests/base)",
        )
    advice = f"kubectl logs -n {state.installation.namespace} deployment/reprieve-webhooks"
    missing = sum(not bundle for bundle in bundles)
    if missing:
        return StatusRow(
            subject="certificates",
            health=Health.PROBLEM,
            detail=f"{missing} of {len(bundles)} webhooks have no caBundle",
            advice=f"the webhooks write it within a minute, else: {advice}",
        )
    moments = [ca_expires_at(bundle) for bundle in set(bundles)]
    known = [moment for moment in moments if moment is not None]
    if len(known) < len(moments):
        detail = "a caBundle cannot be read"
    elif min(known) <= now:
        detail = f"the CA expired at {timestamp.render(min(known))}"
    else:
        detail = f"the CA is valid until {timestamp.render(min(known))}"
        return StatusRow(subject="certificates", health=Health.OK, detail=detail)
    return StatusRow(subject="certificates", health=Health.PROBLEM, detail=detail, advice=advice)


def _guard(validating: WebhookConfiguration | Absence) -> StatusRow:
    if validating is Absence.FORBIDDEN:
        return _unknown("guard", "the ValidatingWebhookConfiguration")
    webhooks = () if isinstance(validating, Absence) else validating.webhooks or ()
    paths = [path for webhook in webhooks if _GUARD_PATH in (path := _path_of(webhook))]
    if not paths:
        return StatusRow(
            subject="guard",
            health=Health.PROBLEM,
            detail="not configured: what a scheduler preempts goes without notice",
            advice="apply the manifests (kubectl apply -k manifests/base)",
        )
    if any(path.endswith(_GUARD_PATH) for path in paths):
        return StatusRow(
            subject="guard",
            health=Health.PROBLEM,
            detail="the webhooks have not written its path yet: it gets no reviews",
            advice="they write it within a minute, if they run",
        )
    return StatusRow(
        subject="guard",
        health=Health.OK,
        detail="reviews deletions by schedulers, and evictions",
    )


def _policy(found: ConfigMap | Absence) -> StatusRow:
    if found is Absence.FORBIDDEN:
        return _unknown("policy", "configmap/reprieve-policy")
    if isinstance(found, Absence):
        return StatusRow(
            subject="policy", health=Health.OK, detail="no ConfigMap: the default of every setting"
        )
    effective = decide_effective_policy(EffectivePolicy(), found.data or {})
    if effective.is_config_map_valid:
        return StatusRow(subject="policy", health=Health.OK, detail="valid")
    return StatusRow(
        subject="policy",
        health=Health.PROBLEM,
        detail=effective.error_message,
        advice="mend configmap/reprieve-policy; until then the policy that was read before holds",
    )


def _victims(
    found: Sequence[PartialObjectMetadata] | Absence, now: datetime
) -> Sequence[StatusRow]:
    if isinstance(found, Absence):
        return [_unknown("victims", "the pods")]
    current = [(pod, victims.read(pod)) for pod in found]
    phases = Counter(victim.phase for _, victim in current if not victim.is_finished)
    counts = ", ".join(f"{number} {phase}" for phase, number in sorted(phases.items()))
    rows = [StatusRow(subject="victims", health=Health.OK, detail=counts or "none")]
    stuck = [line for pod, _ in current if (line := _why_stuck(pod, now))]
    if stuck:
        rows.append(
            StatusRow(
                subject="stuck",
                health=Health.PROBLEM,
                detail=_shortened(stuck, "; "),
                advice="look at the pod's Events, its finalizers and its node; "
                "for one past its deadline, at the operator's log",
            )
        )
    return rows


def _held(pods: Sequence[PartialObjectMetadata] | Absence) -> Sequence[StatusRow]:
    """Return a row for pods that keep a finalizer which the operator may not remove any more."""
    # Where the pods may not be read, the row of the victims says so.
    found = () if isinstance(pods, Absence) else pods
    held = [
        f"{UNTOUCHED}/{pod.metadata.name}"
        for pod in found
        if keys.CLEANUP_FINALIZER in (pod.metadata.finalizers or ())
    ]
    if not held:
        return ()
    return [
        StatusRow(
            subject="held",
            health=Health.PROBLEM,
            detail=f"{_shortened(held)}: the finalizer {keys.CLEANUP_FINALIZER} of an earlier "
            f"version; the operator writes nothing in {UNTOUCHED}",
            advice=f"reprieve cleanup -n {UNTOUCHED} --force",
        )
    ]


def _shortened(found: Sequence[str], separator: str = ", ") -> str:
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return separator.join(found[:_SHOWN]) + more


def _why_stuck(pod: PartialObjectMetadata, now: datetime) -> str:
    """Return why a victim should be gone by now; empty if it is in time."""
    victim = victims.read(pod)
    # A deletionTimestamp is the end of the grace period.
    ends_at = timestamp.parse(pod.metadata.deletionTimestamp)
    name = f"{victim.namespace}/{victim.name}"
    if ends_at is not None:
        held = f" ({', '.join(pod.metadata.finalizers)})" if pod.metadata.finalizers else ""
        is_late = now > ends_at + _STUCK_AFTER
        return f"{name}: its grace period ended {_age(ends_at, now)} ago{held}" if is_late else ""
    deadline = None if victim.state is None or victim.is_finished else victim.state.deadline
    if deadline is None or now <= deadline + _STUCK_AFTER:
        return ""
    return f"{name}: {victim.phase}, {_age(deadline, now)} past its deadline"


def _unknown(subject: str, what: str) -> StatusRow:
    return StatusRow(
        subject=subject,
        health=Health.UNKNOWN,
        detail=f"you may not read {what}",
        advice="needs the ClusterRole reprieve:status",
    )


def _path_of(webhook: Webhook) -> str:
    config = webhook.clientConfig
    return config.service.path if config.service else config.url


def _decode(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error:
        return b"unreadable"


def _age(moment: datetime, now: datetime) -> str:
    seconds = max(0, round((now - moment).total_seconds()))
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 2:
        return f"{seconds}s"
    return f"{minutes}m" if hours < 2 else f"{hours}h"
