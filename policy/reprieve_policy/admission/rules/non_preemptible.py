"""`preemptible: "false"` without a quota that bounds it needs a permission.

Checked when a pod or a template newly has the label: its ElasticQuota has a `min`, or the author
has the verb `claim` on `nonpreemptiblepods.reprieve.dev`, cluster-wide. Offline, where permissions
cannot be checked, it is warned of.

Why: a quota's `min` bounds how much a team may keep from all others. Without one, a label that any
user may write would make any number of pods non-preemptible.

Source: document 000, "Quota Assignment": the limit of non-preemptible pods is the quota's `min`;
"no right is gained by annotation".

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
    f'needs an ElasticQuota with a min, or verb "{CLAIM_NON_PREEMPTIBLE.verb}" on '
    f"{CLAIM_NON_PREEMPTIBLE.resource}.reprieve.dev, cluster-wide"
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
