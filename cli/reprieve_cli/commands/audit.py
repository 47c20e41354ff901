"""`reprieve audit`: the objects of a cluster that the rules would refuse today."""

from collections.abc import Mapping, Sequence

import click

from reprieve_cli.checking import checker
from reprieve_cli.checking.known_objects import POLICY_MAP
from reprieve_cli.cluster import connection
from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_cli.cluster.connection import ClusterTarget, cluster_options
from reprieve_cli.output.finding import Finding, Level, ObjectName, Summary
from reprieve_cli.output.formats import gauge, report
from reprieve_cli.output.terminal import echo, echo_part
from reprieve_policy.admission.rules import RULES
from reprieve_policy.config.namespace import EXEMPT
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource, controller_of, is_of_kind
from reprieve_runtime.client.api import Api

KINDS_WITH_RULES = tuple(
    row for row in KINDS.values() if any(row.kind in rule.kinds for rule in RULES)
)
"""The kinds that at least one rule applies to."""

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
@click.option("--by-namespace", is_flag=True, help="With -o prometheus: add the label namespace.")
@click.option("--strict", is_flag=True, help="List warnings too; a warning causes status 1.")
def command(*, target: ClusterTarget, output: str, by_namespace: bool, strict: bool) -> None:
    """List the objects of a cluster that violate a rule.

    Reads every kind that has rules and that the cluster serves. Evaluates each object as if it were
    created now, also in namespaces that only warn or that do not enforce; the column ENFORCEMENT
    shows which. Writes nothing. Needs the rights of the ClusterRole reprieve:audit.

    Exit status: 0 no rule is violated; 1 a rule is violated; 2 something could not be read (the
    rest is listed).
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
        """Read and check the objects, write the report, and return the exit status."""
        reader = ClusterReader(api, self._namespace, self._report_unreadable)
        policy = await reader.read_policy()
        if not self._namespace or self._namespace in policy.namespaces:
            await self._read(reader, policy)
        echo_part(self._report.end(self._summary))
        return self._summary.exit_status(strict=self._is_strict)

    async def _read(self, reader: ClusterReader, policy: ClusterPolicy) -> None:
        for collections in (
            reader.collections(KINDS_WITH_RULES),
            reader.custom_collections(policy.settings.template_kinds),
        ):
            async for collection in collections:
                async for page in reader.pages(collection):
                    self._write(
                        [
                            found
                            for resource in page
                            for found in self._check(collection.kind, resource, policy)
                        ]
                    )
                    self._report.count_checked(collection.kind, len(page))
                    self._summary.objects += len(page)

    def _check(self, kind: str, resource: Resource, policy: ClusterPolicy) -> Sequence[Finding]:
        name = ObjectName(kind, resource.metadata.namespace or "", resource.metadata.name or "")
        if not _is_checked(resource, name):
            return ()
        found = checker.check_resource(resource, policy.facts_as_enforced(name.namespace))
        enforcement = (
            policy.namespace_policy(_namespace_of(name)).enforcement if _namespace_of(name) else ""
        )
        return [
            each.with_object(name, enforcement)
            for each in found
            if self._is_strict or each.level is Level.VIOLATION
        ]

    def _report_unreadable(self, reason: str) -> None:
        finding = Finding(level=Level.UNREADABLE, message=reason)
        echo(f"unreadable: {finding.message}", err=True)
        self._write([finding])

    def _write(self, findings: Sequence[Finding]) -> None:
        self._summary.count(findings)
        echo_part(self._report.page(findings))


def _namespace_of(name: ObjectName) -> str:
    return name.name if name.kind == "Namespace" else name.namespace


def _is_checked(resource: Resource, name: ObjectName) -> bool:
    """Return whether the audit covers an object.

    It does not cover what webhooks ignore, nor the ReplicaSets of a Deployment: they have the
    template that is checked with the Deployment.
    """
    is_exempt = name != POLICY_MAP and _namespace_of(name) in EXEMPT
    return not is_exempt and not (resource.kind == "ReplicaSet" and _is_of_deployment(resource))


def _is_of_deployment(resource: Resource) -> bool:
    """Return whether a Deployment made it. Other owners, like a Rollout, have no rules."""
    return is_of_kind(controller_of(resource.metadata), "apps", "Deployment")
