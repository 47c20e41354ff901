"""The ConfigMap with the cluster's policy can be read, and its settings can hold together.

Checked: every key of the ConfigMap `reprieve-policy` in Reprieve's own namespace is a setting, every value can be read, and
no setting contradicts another, like a checkpoint's time above the ceiling. Every other ConfigMap is nobody's business here.

Why: it is checked by the parser that applies it, so that a slip is refused when it is made. One that gets in anyway, while no
webhook watches, leaves in force what was, with an Event and a metric.

Source: the settings stand in for the constants of documents 000, 001 and 003.

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
