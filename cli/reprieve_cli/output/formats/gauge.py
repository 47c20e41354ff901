"""The Prometheus text format, for a textfile collector or a Pushgateway: numbers of findings.

There is a gauge for each rule and kind, also for zero violations: without the zero, an alert could
not tell it from an audit that did not run. Objects are never labels. A namespace is a label only
with `--by-namespace`, and then only with violations: there may be thousands of namespaces.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from reprieve_cli.output.finding import Finding, Level, Summary
from reprieve_policy.admission.rules import RULES
from reprieve_policy.config.namespace import ENFORCE

from .report import ReportWriter

_VIOLATIONS = "reprieve_audit_violations"
_OBJECTS = "reprieve_audit_objects"
_UNREADABLE = "reprieve_audit_unreadable"
Labels = tuple[tuple[str, str], ...]


class PrometheusReport(ReportWriter):
    """Counts findings and objects, and returns all gauges at the end."""

    def __init__(self, *, by_namespace: bool = False) -> None:
        super().__init__(by_namespace=by_namespace)
        self._violations: Counter[Labels] = Counter()
        self._objects: Counter[Labels] = Counter()

    def page(self, findings: Sequence[Finding]) -> str:
        """Count the violations; return nothing yet."""
        self._violations.update(
            self._labels(each) for each in findings if each.level is Level.VIOLATION
        )
        return ""

    def count_checked(self, kind: str, objects: int) -> None:
        """Count the objects, and create a gauge of zero for each rule of their kind."""
        self._objects[(("kind", kind),)] += objects
        if not self.by_namespace:
            for rule in RULES:
                if kind in rule.kinds:
                    self._violations[
                        ("rule", rule.id), ("kind", kind), ("enforcement", ENFORCE)
                    ] += 0

    def end(self, summary: Summary) -> str:
        """Return all samples."""
        return "".join(
            (
                *_family(
                    _VIOLATIONS, "Violations if the objects were created now.", self._violations
                ),
                *_family(_OBJECTS, "Objects checked.", self._objects),
                *_family(_UNREADABLE, "Reads that failed.", {(): summary.unreadable}),
            )
        )

    def _labels(self, finding: Finding) -> Labels:
        assert finding.object is not None
        kind, namespace, _ = finding.object
        labels: Labels = (
            ("rule", finding.rule),
            ("kind", kind),
            ("enforcement", finding.enforcement or ENFORCE),
        )
        return (*labels, ("namespace", namespace)) if self.by_namespace else labels


def _family(
    name: str, help_text: str, samples: "Counter[Labels] | dict[Labels, int]"
) -> Iterator[str]:
    yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
    for labels, value in sorted(samples.items()):
        pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
        yield f"{name}{{{pairs}}} {value}\n" if pairs else f"{name} {value}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
