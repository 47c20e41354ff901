"""`reprieve audit`: what a cluster already has and rules would refuse today."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from reprieve_policy.kinds import KINDS
from reprieve_policy.objects import Resource, controller_of
from reprieve_policy.rules import RULES
from reprieve_runtime.api import Api, ApiError

from . import judging
from .cluster import ClusterReader, Known
from .finding import Finding, Level, ObjectName, Tally, printable
from .formats import gauge, report
from .knowledge import EXEMPT, POLICY_MAP

USER_AGENT = "reprieve-audit"
ROWS = tuple(row for row in KINDS.values() if any(row.kind in rule.kinds for rule in RULES))
"""The kinds that have rules."""

_REPORTS: Mapping[str, type[report.Report]] = {
    "table": report.Table,
    "json": report.Document,
    "prometheus": gauge.Gauges,
}


@click.command
@click.option("-n", "--namespace", default="", help="Only this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces, and what is in none: the default.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="As kubectl's; else its default file.")
@click.option("--context", help="The context of the kubeconfig to use.")
@click.option("-o", "--output", type=click.Choice(list(_REPORTS)), default="table", show_default=True)
@click.option("--by-namespace", is_flag=True, help="Give Prometheus' gauges the namespace as a label.")
@click.option("--strict", is_flag=True, help="List warnings too; one is as bad as a violation.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    namespace: str,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
    by_namespace: bool,
    strict: bool,
) -> None:
    """List what is in a cluster and breaks a rule, of every kind that has rules and that the cluster serves.

    Each object is judged as if it were created now, in namespaces that only warn or that are left alone too: ENFORCEMENT
    says which they are. Nothing is written. The rights that it takes are the ClusterRole reprieve:audit.

    Exits with 0 where no rule is violated, 1 where one is, 2 where something could not be read (the rest is listed).
    """
    if namespace and all_namespaces:
        raise click.UsageError("-n and -A exclude each other")
    chosen = _REPORTS[output](by_namespace=by_namespace)
    audit = Audit(chosen, namespace, with_warnings=strict)
    asyncio.run(audit.run(kubeconfig, context))
    ctx.exit(audit.tally.exit_status(strict=strict))


class Audit:
    """One pass over a cluster."""

    def __init__(self, chosen: report.Report, in_namespace: str, *, with_warnings: bool) -> None:
        self.tally = Tally()
        self._report = chosen
        self._namespace = in_namespace
        self._with_warnings = with_warnings

    async def run(self, kubeconfig: Path | None, context: str | None) -> None:
        """Read, judge and write."""
        try:
            api = await Api.connect(kubeconfig, context, user_agent=USER_AGENT)
        except (ApiError, OSError) as error:
            reason = error.message if isinstance(error, ApiError) else f"{error.filename}: {error.strerror}"
            self._tell(reason)
        else:
            try:
                await self._read(ClusterReader(api, self._namespace, self._tell))
            finally:
                await api.close()
        click.echo(self._report.end(self.tally), nl=False)

    async def _read(self, reader: ClusterReader) -> None:
        known = await reader.known()
        if self._namespace and self._namespace not in known.namespaces:
            return
        async for collection in reader.collections(ROWS):
            async for page in reader.pages(collection):
                self._write([finding for resource in page for finding in self._judge(resource, known)])
                self._report.judged(collection.kind, len(page))
                self.tally.objects += len(page)

    def _judge(self, resource: Resource, known: Known) -> Sequence[Finding]:
        name = _name_of(resource)
        if not _is_judged(resource, name):
            return ()
        facts = known.facts_for(name.namespace)
        found = judging.judge_by(resource, facts)
        enforcement = known.policy_of(_namespace_of(name)).enforcement if _namespace_of(name) else ""
        return [each.of(name, enforcement) for each in found if self._with_warnings or each.level is Level.VIOLATION]

    def _tell(self, reason: str) -> None:
        finding = Finding(level=Level.UNREADABLE, message=printable(reason))
        click.echo(f"unreadable: {finding.message}", err=True)
        self._write([finding])

    def _write(self, findings: Sequence[Finding]) -> None:
        self.tally.count(findings)
        click.echo(self._report.page(findings), nl=False)


def _name_of(resource: Resource) -> ObjectName:
    metadata = resource.metadata
    return ObjectName(resource.kind, metadata.namespace or "", metadata.name or "")


def _namespace_of(name: ObjectName) -> str:
    return name.name if name.kind == "Namespace" else name.namespace


def _is_judged(resource: Resource, name: ObjectName) -> bool:
    """False for what webhooks do not look at either: a Deployment's ReplicaSets have its template, judged with it."""
    is_copy = resource.kind == "ReplicaSet" and controller_of(resource.metadata) is not None
    return not is_copy and (name == POLICY_MAP or _namespace_of(name) not in EXEMPT)
