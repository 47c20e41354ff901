"""The guard's messages, one by one: for a scheduler's log, and for a user who drains a node.

To change a text, delete `golden/guard.txt`, run this test twice, and read the difference.
"""

from datetime import datetime
from pathlib import Path

from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.eviction import ProtectionReason as Protection
from reprieve_policy.preemption import guard
from reprieve_policy.preemption.guard import Requester, RequestKind, TargetPod
from reprieve_policy.preemption.selection import Refusal, RefusalReason
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after

GOLDEN = Path(__file__).parents[1] / "golden" / "guard.txt"
FACTS = Facts(operator_is_live=True)
PREEMPTED = Requester(request_kind=RequestKind.PREEMPTION)


def sought(pod: PodBuilder, **fields: object) -> TargetPod:
    (view,) = pod_views(pod.build())
    return TargetPod(view=view, **fields)  # type: ignore[arg-type]  # named by this module only


def in_phase(phase: Phase, **fields: object) -> Eviction:
    known = {"eviction_id": "e", "requested_at": NOW, "deadline": after(600), **fields}
    return Eviction(phase=phase, **known)  # type: ignore[arg-type]  # named by this module only


def refused(ground: RefusalReason, until: datetime | None = None) -> Requester:
    detail = "what only an owner may read: pod worker-7 has priority 9000"
    return Requester(request_kind=RequestKind.PREEMPTION, refusal=Refusal(ground, detail, until))


HINTING = a_pod().with_hint()
CASES = {
    "notified now": (sought(HINTING), PREEMPTED),
    "marked, and not taken up": (sought(HINTING, is_marked=True), PREEMPTED),
    "notified before": (sought(HINTING, state=in_phase(Phase.HINTED)), PREEMPTED),
    "just taken up": (sought(HINTING, state=in_phase(Phase.REQUESTED)), PREEMPTED),
    "saved": (sought(HINTING, state=in_phase(Phase.SAVED)), PREEMPTED),
    "class 10": (
        sought(a_pod().labelled("quota.scheduling.koordinator.sh/preemptible", "false")),
        PREEMPTED,
    ),
    "near completion": (sought(HINTING, walltime=Walltime(after(-3500), 3600)), PREEMPTED),
    "reprieved by the operator": (
        sought(HINTING, state=in_phase(Phase.REPRIEVED, refused_on=Protection.NEAR_COMPLETION)),
        PREEMPTED,
    ),
    "a toleration": (sought(HINTING), refused(RefusalReason.TOLERATION)),
    "a toleration that ends": (sought(HINTING), refused(RefusalReason.TOLERATION, after(600))),
    "a class": (sought(HINTING), refused(RefusalReason.CLASS)),
    "what it is defended with": (sought(HINTING), refused(RefusalReason.PRIORITY)),
    "the preemptor's quota": (sought(HINTING), refused(RefusalReason.QUOTA_EXCEEDED)),
    "another ground": (sought(HINTING), refused(RefusalReason.QUOTA)),
    "one of its gang is protected": (sought(HINTING), refused(RefusalReason.GANG)),
    "a second set": (
        sought(HINTING),
        Requester(request_kind=RequestKind.PREEMPTION, has_victims_elsewhere=True),
    ),
    "a budget": (
        sought(HINTING),
        Requester(request_kind=RequestKind.EVICTION, eviction_blocked=True),
    ),
}


def test_every_text_is_as_pinned() -> None:
    texts = {case: message(*arguments) for case, arguments in CASES.items()}
    texts["too many evictions at once"] = str(guard.TOO_MANY_EVICTIONS.violation)
    texts_of_all_cases = "".join(f"# {case}\n{text}\n" for case, text in texts.items())
    if not GOLDEN.exists():
        GOLDEN.write_text(texts_of_all_cases, encoding="utf-8")
        raise AssertionError(f"{GOLDEN.name} was not there: written anew")
    assert texts_of_all_cases == GOLDEN.read_text(encoding="utf-8")


def test_no_text_names_other_pods_or_their_priorities() -> None:
    texts_of_all_cases = " ".join(message(*arguments) for arguments in CASES.values())
    assert "worker-7" not in texts_of_all_cases
    assert "9000" not in texts_of_all_cases


def test_every_text_is_short_enough_to_be_a_warning() -> None:
    too_long = [
        text for text in (message(*arguments) for arguments in CASES.values()) if len(text) >= 120
    ]
    assert too_long == []


def message(pod: TargetPod, requester: Requester) -> str:
    ruling = guard.decide(pod, requester, FACTS, NOW)
    assert ruling.violation is not None
    return str(ruling.violation)
