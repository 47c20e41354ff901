"""`reprieve audit`: what a cluster already has and rules would refuse today."""

from collections.abc import Mapping, Sequence

import click

from reprieve_cli.checking import checker
from reprieve_cli.checking.known_objects import POLICY_MAP
from reprieve_cli.cluster import connection
from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_cli.cluster.connection import ClusterTarget, cluster_options
from reprieve_cli.output.finding import Finding, Level, ObjectName, Summary, printable
from reprieve_cli.output.formats import gauge, report
from reprieve_policy.admission.rules import RULES
from reprieve_policy.config.namespace import EXEMPT
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource, controller_of
from reprieve_runtime.client.api import Api

KINDS_WITH_RULES = tuple(
    row for row in KINDS.values() if any(row.kind in rule.kinds for rule in RULES)
)
"""The kinds that have rules."""

_REPORTS: Mapping[str, type[report.ReportWriter]] = {
    "table": report.TableReport,
    "json": report.JsonReport,
    "prometheus": gauge.PrometheusReport,
}


@click.command
@cluster_options(everywhere=True)
@click.option(
    "-o", "--output", type=click.Choice(list(_REPORTS)), default="table", show_default=True
)
@click.option(
    "--by-namespace", is_flag=True, help="Give Prometheus' gauges the namespace as a label."
)
@click.option("--strict", is_flag=True, help="List warnings too; one is as bad as a violation.")
def command(*, target: ClusterTarget, output: str, by_namespace: bool, strict: bool) -> None:
    """List what is in a cluster and breaks a rule, of every kind that has rules and that the cluster serves.

    Each object is judged as if it were created now, in namespaces that only warn or that are left alone too: ENFORCEMENT
    says which they are. Nothing is written. The rights that it takes are the ClusterRole reprieve:audit.

    Exits with 0 where no rule is violated, 1 where one is, 2 where something could not be read (the rest is listed).
    """
    audit = Audit(
        _REPORTS[output](by_namespace=by_namespace), target.namespace or "", is_strict=strict
    )
    connection.run(target, audit.run)


class Audit:
    """One pass over a cluster."""

    def __init__(self, chosen: report.ReportWriter, in_namespace: str, *, is_strict: bool) -> None:
        self._summary = Summary()
        self._report = chosen
        self._namespace = in_namespace
        self._is_strict = is_strict

    async def run(self, api: Api) -> int:
        """Read, judge and write; return the exit status."""
        reader = ClusterReader(api, self._namespace, self._report_unreadable)
        known = await reader.read_policy()
        if not self._namespace or self._namespace in known.namespaces:
            await self._read(reader, known)
        click.echo(self._report.end(self._summary), nl=False)
        return self._summary.exit_status(strict=self._is_strict)

    async def _read(self, reader: ClusterReader, known: ClusterPolicy) -> None:
        for collections in (
            reader.collections(KINDS_WITH_RULES),
            reader.custom_collections(known.settings.template_kinds),
        ):
            async for collection in collections:
                async for page in reader.pages(collection):
                    self._write(
                        [
                            found
                            for resource in page
                            for found in self._check(collection.kind, resource, known)
                        ]
                    )
                    self._report.count_checked(collection.kind, len(page))
                    self._summary.objects += len(page)

    def _check(self, kind: str, resource: Resource, known: ClusterPolicy) -> Sequence[Finding]:
        name = ObjectName(kind, resource.metadata.namespace or "", resource.metadata.name or "")
        if not _is_checked(resource, name):
            return ()
        found = checker.check_resource(resource, known.facts_as_enforced(name.namespace))
        enforcement = (
            known.namespace_policy(_namespace_of(name)).enforcement if _namespace_of(name) else ""
        )
        return [
            each.with_object(name, enforcement)
            for each in found
            if self._is_strict or each.level is Level.VIOLATION
        ]

    def _report_unreadable(self, reason: str) -> None:
        finding = Finding(level=Level.UNREADABLE, message=printable(reason))
        click.echo(f"unreadable: {finding.message}", err=True)
        self._write([finding])

    def _write(self, findings: Sequence[Finding]) -> None:
        self._summary.count(findings)
        click.echo(self._report.page(findings), nl=False)


def _namespace_of(name: ObjectName) -> str:
    return name.name if name.kind == "Namespace" else name.namespace


def _is_checked(resource: Resource, name: ObjectName) -> bool:
    """False for what webhooks do not look at either, and for a Deployment's ReplicaSets: they have its template, judged with it."""
    is_exempt = name != POLICY_MAP and _namespace_of(name) in EXEMPT
    return not is_exempt and not (resource.kind == "ReplicaSet" and _is_of_deployment(resource))


def _is_of_deployment(resource: Resource) -> bool:
    """True for one that a Deployment made. Of another controller's, say a rollout's, nobody else sees the template."""
    owner = controller_of(resource.metadata)
    return owner is not None and owner.kind == "Deployment" and owner.apiVersion.startswith("apps/")
