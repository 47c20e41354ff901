"""`preemptible: "false"` needs a permission, or a quota of the namespace that bounds it.

Checked when a pod or a template newly has the label, and when one that a quota bounds requests more
or uses another quota. Its author needs the verb `claim` on `nonpreemptiblepods.reprieve.dev`,
cluster-wide, unless its ElasticQuota bounds the claim. Such a quota is meant for the namespace: it
is in that namespace, or lists it in `quota.scheduling.koordinator.sh/namespaces`. Its `min` names
every resource that the pod requests, and has room for the request of all pods of a template, beside
what its non-preemptible pods use or wait for. No quota bounds a pod that requests nothing, one with
ResourceClaims, or a DaemonSet. Offline, where permissions cannot be checked, a claim that no quota
bounds is warned of.

Why: a quota's `min` bounds how much a team may keep from all others. Without one, a label that any
user may write would make any number of pods non-preemptible. What other rules do about a request
that does not fit (`quotaFit`) changes nothing here.

Source: document 000, "Quota Assignment": the limit of non-preemptible pods is the quota's `min`;
"no right is gained by annotation". Used figures are those that Koordinator publishes; where it
publishes none of non-preemptible pods, `status.used` counts.

Setting: none is needed if `disableDefaultPreemptiable` is `"true"`: then every pod without the
label is non-preemptible.
"""

from reprieve_policy.admission import permissions
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTIBLE
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, label_path

_NEEDS = (
    "needs an ElasticQuota of this namespace whose min names all requested resources and has room, "
    f'or verb "{CLAIM_NON_PREEMPTIBLE.verb}" on {CLAIM_NON_PREEMPTIBLE.resource}.reprieve.dev, '
    "cluster-wide"
)


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check that the author may claim it."""
    if not facts.is_offline and CLAIM_NON_PREEMPTIBLE not in facts.missing_permissions:
        return NO_FINDINGS
    paths = [
        label_path(view.prefix, PREEMPTIBLE)
        for view in permissions.non_preemptible_claims(resource, old, facts)
    ]
    if facts.is_offline:
        return (
            Verdict(warnings=tuple(f"{path}: needs a quota or a right" for path in paths))
            if paths
            else NO_FINDINGS
        )
    return Verdict(
        violations=tuple(Violation(path, ViolationKind.FORBIDDEN, None, _NEEDS) for path in paths)
    )
