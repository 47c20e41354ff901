"""The verdict of a run as text. Pure."""

from collections.abc import Sequence

from .plan import Fault, RobustnessPlan
from .promises import NUMBER_OF_CHECKS
from .resources import ResourceSlope, slopes
from .run import RobustnessOutcome

LONG_RUN_SECONDS = 20 * 60.0
"""In a shorter run, noise of a few MiB looks like a steep slope."""
MOST_RSS_MIB_AN_HOUR, MOST_DESCRIPTORS_AN_HOUR = 60.0, 60.0


def failures(outcome: RobustnessOutcome) -> list[str]:
    """Return why a run has failed, one sentence each; none if it passed."""
    found = list(outcome.broken)
    if not outcome.broken:
        found += [
            f"{fault}: planned, but it never took effect" for fault in outcome.never_injected()
        ]
        found += growing(slopes(outcome.samples), outcome.seconds)
    return found


def growing(found: Sequence[ResourceSlope], seconds: float) -> list[str]:
    """Return a sentence for each program that grows too quickly in a long run."""
    if seconds < LONG_RUN_SECONDS:
        return []
    return [
        f"{slope.program}: grows by {slope.rss_mib_an_hour:.1f} MiB and "
        f"{slope.descriptors_an_hour:.1f} open files an hour"
        for slope in found
        if slope.rss_mib_an_hour > MOST_RSS_MIB_AN_HOUR
        or slope.descriptors_an_hour > MOST_DESCRIPTORS_AN_HOUR
    ]


def render(outcome: RobustnessOutcome) -> str:
    """Return the whole report."""
    found = failures(outcome)
    return "\n".join(
        [
            _summary(outcome),
            "",
            *_table("work, in pods", dict(outcome.worked)),
            "",
            *_table("faults that took effect, of those planned", _faults(outcome)),
            "",
            *_table("calls that a fault met", dict(outcome.hits)),
            "",
            *(_slope(slope) for slope in slopes(outcome.samples)),
            "",
            *(["FAILED"] if found else ["passed: no promise broken"]),
            *found,
        ]
    )


def replayed(plan: RobustnessPlan, attempts: int) -> str:
    """Describe the plan that is left after shrinking."""
    actions = [
        f"  round {of.number}, at {action.at} s: {action.name}"
        f"{f' for {action.seconds:g} s' if action.seconds else ''}"
        f"{f', {action.count} pods, {action.habit}' if not action.is_fault else ''}"
        for of, action in plan.pairs()
    ]
    return "\n".join([f"after {attempts} replays, this still fails:", *actions])


def _summary(outcome: RobustnessOutcome) -> str:
    plan, checks = outcome.plan, outcome.checks
    return (
        f"seed {plan.seed}, {plan.minutes:g} minutes: "
        f"{outcome.played} of {len(plan.rounds)} rounds in {outcome.seconds:.0f} s, "
        f"{checks['victims']} victims, {outcome.calls} calls of the operator, "
        f"{checks['rounds']} times {NUMBER_OF_CHECKS} promises checked; "
        f"without a leader, or with disturbed calls: {outcome.outage_seconds:.0f} s"
    )


def _faults(outcome: RobustnessOutcome) -> dict[str, str]:
    planned = outcome.plan.planned()
    return {
        fault: f"{outcome.injected[fault]} of {planned[fault]}" for fault in Fault if planned[fault]
    }


def _table(title: str, rows: dict[str, object] | dict[str, int] | dict[str, str]) -> list[str]:
    return [f"{title}:", *(f"  {name:<20} {value}" for name, value in sorted(rows.items()))]


def _slope(slope: ResourceSlope) -> str:
    return (
        f"{slope.program}: at most {slope.most_rss_mib:.0f} MiB and {slope.most_descriptors} "
        f"open files; slope {slope.rss_mib_an_hour:+.1f} MiB and "
        f"{slope.descriptors_an_hour:+.1f} open files an hour, from {slope.samples} samples"
    )
