"""`reprieve check`: manifests against the rules of admission, before they are applied."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain

import click

from reprieve_cli.checking.checker import check_manifest
from reprieve_cli.checking.inputs import InputReader, Item, collect, redefinitions
from reprieve_cli.checking.known_objects import KnownObjects
from reprieve_cli.names import NamespaceNameType, refuse_empty
from reprieve_cli.output.finding import Finding, Summary
from reprieve_cli.output.progress import track
from reprieve_cli.output.terminal import echo_part

FORMATS = {"text": "text", "json": "document", "sarif": "sarif", "github": "github"}


@click.command(no_args_is_help=True)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, callback=refuse_empty)
@click.option("-R", "--recursive", is_flag=True, help="Read the folders below a folder too.")
@click.option(
    "--policy",
    metavar="DIR",
    multiple=True,
    callback=refuse_empty,
    help="A folder with all PriorityClasses, Namespaces and ElasticQuotas of the cluster, and its "
    "ConfigMap reprieve-policy. Without it, an object that no file has may be in the cluster.",
)
@click.option(
    "-n",
    "--namespace",
    type=NamespaceNameType(),
    help="Namespace of objects that name none.",
)
@click.option("-o", "--output", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option(
    "--exclude",
    metavar="PATTERN",
    multiple=True,
    callback=refuse_empty,
    help="Leave out files and folders with this name or path, like '.github' or 'charts/*'; a "
    "path may begin below FILE.",
)
@click.option("--strict", is_flag=True, help="A warning causes status 1.")
@click.pass_context
def command(
    ctx: click.Context,
    files: Sequence[str],
    *,
    recursive: bool,
    policy: Sequence[str],
    namespace: str | None,
    output: str,
    exclude: Sequence[str],
    strict: bool,
) -> None:
    """Check manifests against the rules of admission, without a cluster.

    FILE is YAML or JSON with one or more objects, a folder of such files, or - for standard input:

        kubectl kustomize . | reprieve check -

    Exit status: 0 no rule is violated; 1 a rule is violated; 2 something could not be read (the
    rest is checked).
    """
    summary = Summary()
    reader = InputReader(namespace or "", exclude, summary)
    found = chain(reader.read(files, recursive=recursive), reader.read_policy(policy))
    items = list(track(found, "objects read"))
    findings = _findings(items, collect(items, is_complete=bool(policy)), summary)
    writer = import_module(f"reprieve_cli.output.formats.{FORMATS[output]}")
    for part in writer.write(findings, summary):
        echo_part(part)
    ctx.exit(summary.exit_status(strict=strict))


def _findings(
    items: Sequence[Item], known_objects: KnownObjects, summary: Summary
) -> Iterator[Finding]:
    redefined = redefinitions(items)
    for index, item in enumerate(track(items, "objects checked")):
        if isinstance(item, Finding):
            found = [item]
        else:
            summary.objects += 1
            found = check_manifest(item.manifest_object, item.document, known_objects)
            if index in redefined:
                found = [redefined[index], *found]
        summary.count(found)
        yield from found
