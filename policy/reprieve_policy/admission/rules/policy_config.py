"""The ConfigMap with the cluster's policy is readable, and its settings agree.

Checked: every key of the ConfigMap `reprieve-policy` in Reprieve's own namespace is a setting,
every value is readable, and no setting contradicts another, like a checkpoint's time above the
ceiling. Other ConfigMaps are not checked.

Why: it is checked by the parser that applies it, so that a mistake is refused when it is made. If
one is written while no webhook watches, the previous policy stays in force, with an Event and a
metric.

Source: the settings replace the constants of documents 000, 001 and 003.

Setting: the programs' `--namespace` and `--policy-config-map` say which ConfigMap it is.
"""

from reprieve_policy.config import settings
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import NO_FINDINGS, Verdict


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check all settings."""
    if (resource.metadata.namespace, resource.metadata.name) != facts.policy_config_map:
        return NO_FINDINGS
    parsed = settings.parse(resource.data or {})
    return NO_FINDINGS if isinstance(parsed, PolicySettings) else Verdict(violations=parsed)
