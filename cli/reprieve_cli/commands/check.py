"""`reprieve check`: manifests against the rules of admission, before they are applied."""

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

import click

from reprieve_cli.checking.checker import check_manifest
from reprieve_cli.checking.known_objects import KnownObjects
from reprieve_cli.manifests import documents, manifest_objects, sources
from reprieve_cli.manifests.documents import Document
from reprieve_cli.manifests.manifest_objects import ManifestObject
from reprieve_cli.manifests.sources import Unreadable
from reprieve_cli.output.finding import Finding, Level, Summary
from reprieve_cli.output.progress import track

FORMATS = {"text": "text", "json": "document", "sarif": "sarif", "github": "github"}
_POLICY_KINDS = ("PriorityClass", "Namespace", "ElasticQuota", "ConfigMap")


class _ManifestItem(NamedTuple):
    document: Document
    manifest_object: ManifestObject


_Item = _ManifestItem | Finding
"""A part of a file: an object, or the finding that it cannot be read."""


@click.command(no_args_is_help=True)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-R", "--recursive", is_flag=True, help="Read the folders below a folder too.")
@click.option(
    "--policy",
    metavar="DIR",
    multiple=True,
    help="A folder with all PriorityClasses, Namespaces and ElasticQuotas of the cluster, and its "
    "ConfigMap reprieve-policy. Without it, an object that no file has may be in the cluster.",
)
@click.option("-n", "--namespace", default="", help="Namespace of objects that name none.")
@click.option("-o", "--output", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="A warning causes status 1.")
@click.pass_context
def command(
    ctx: click.Context,
    files: Sequence[str],
    *,
    recursive: bool,
    policy: Sequence[str],
    namespace: str,
    output: str,
    strict: bool,
) -> None:
    """Check manifests against the rules of admission, without a cluster.

    FILE is YAML or JSON with one or more objects, a folder of such files, or - for standard input:

        kubectl kustomize . | reprieve check -

    Exit status: 0 no rule is violated; 1 a rule is violated; 2 something could not be read (the
    rest is checked).
    """
    summary = Summary()
    items = list(
        track(
            _read(files, policy, recursive=recursive, namespace=namespace, summary=summary),
            "objects read",
        )
    )
    findings = _findings(items, _known_objects(items, is_complete=bool(policy)), summary)
    writer = import_module(f"reprieve_cli.output.formats.{FORMATS[output]}")
    for part in writer.write(findings, summary):
        click.echo(part, nl=False)
    ctx.exit(summary.exit_status(strict=strict))


def _read(
    files: Iterable[str],
    policy: Iterable[str],
    *,
    recursive: bool,
    namespace: str,
    summary: Summary,
) -> Iterator[_Item]:
    """Yield the items of the files and the policy objects of the policy folders; each file once."""
    seen: set[str] = set()
    for names, is_policy in ((files, False), (policy, True)):
        for text in sources.read_all(names, recursive=recursive or is_policy):
            path = os.path.realpath(text.file)
            if path in seen:
                continue
            seen.add(path)
            summary.files += 1
            found = _items(text, namespace)
            yield from (item for item in found if not is_policy or _is_policy(item))


def _items(text: sources.SourceText, namespace: str) -> Iterator[_Item]:
    if isinstance(text.content, Unreadable):
        yield _unreadable(text.file, text.content)
        return
    for item in documents.read(text.file, text.content):
        if isinstance(item, Unreadable):
            yield _unreadable(text.file, item)
        else:
            yield _ManifestItem(item[0], manifest_objects.build(item[1], namespace))


def _is_policy(item: _Item) -> bool:
    return isinstance(item, Finding) or item.manifest_object.name.kind in _POLICY_KINDS


def _known_objects(items: Iterable[_Item], *, is_complete: bool) -> KnownObjects:
    known_objects = KnownObjects(is_complete=is_complete)
    for item in items:
        if isinstance(item, _ManifestItem):
            known_objects.add(item.manifest_object)
    return known_objects


def _findings(
    items: Iterable[_Item], known_objects: KnownObjects, summary: Summary
) -> Iterator[Finding]:
    for item in track(items, "objects checked"):
        if isinstance(item, Finding):
            found = [item]
        else:
            summary.objects += 1
            found = check_manifest(item.manifest_object, item.document, known_objects)
        summary.count(found)
        yield from found


def _unreadable(file: str, error: Unreadable) -> Finding:
    return Finding(level=Level.UNREADABLE, file=file, line=error.line, message=error.reason)
