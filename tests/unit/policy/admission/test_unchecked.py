"""Objects that are too large to be checked."""

import pytest

from reprieve_policy.admission.review import TOO_LARGE, decide_unchecked
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import NO_FINDINGS, Verdict

REFUSED, WARNED = Verdict((TOO_LARGE,)), Verdict(warnings=(str(TOO_LARGE),))


@pytest.mark.parametrize(
    ("enforcement", "verdict"), [("enforce", REFUSED), ("warn", WARNED), ("off", NO_FINDINGS)]
)
def test_it_is_refused_as_strictly_as_the_namespace_says(
    enforcement: str, verdict: Verdict
) -> None:
    facts = Facts(namespace=NamespacePolicy(enforcement=enforcement))
    assert decide_unchecked(Resource(kind="Deployment"), None, facts) == verdict
