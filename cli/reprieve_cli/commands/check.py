"""`reprieve check`: manifests, before anybody applies them, by the rules that would admit them."""

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
    subject: ManifestObject


_Item = _ManifestItem | Finding
"""What a file has: objects, and what cannot be read."""


@click.command(no_args_is_help=True)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-R", "--recursive", is_flag=True, help="Look in the folders below a folder too.")
@click.option(
    "--policy",
    metavar="DIR",
    multiple=True,
    help="A folder with all PriorityClasses, Namespaces and ElasticQuotas of the cluster, and its ConfigMap reprieve-policy; "
    "without it, what an object refers to may be in the cluster.",
)
@click.option("-n", "--namespace", default="", help="The namespace of objects that name none.")
@click.option("-o", "--output", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="A warning is as bad as a violation.")
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
    """Check manifests, without a cluster, by the rules that would admit them.

    FILE is YAML or JSON, of one object or many, a folder of such files, or - for standard input:

        kubectl kustomize . | reprieve check -

    Exits with 0 where no rule is violated, 1 where one is, 2 where something could not be read (the rest is checked).
    """
    tally = Summary()
    items = list(
        track(
            _read(files, policy, recursive=recursive, namespace=namespace, summary=tally),
            "objects read",
        )
    )
    findings = _findings(items, _known_objects(items, is_complete=bool(policy)), tally)
    writer = import_module(f"reprieve_cli.output.formats.{FORMATS[output]}")
    for part in writer.write(findings, tally):
        click.echo(part, nl=False)
    ctx.exit(tally.exit_status(strict=strict))


def _read(
    files: Iterable[str],
    policy: Iterable[str],
    *,
    recursive: bool,
    namespace: str,
    summary: Summary,
) -> Iterator[_Item]:
    """Yield what the files have, and of the policy's folders what is a policy; a file that is in both once."""
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
    return isinstance(item, Finding) or item.subject.name.kind in _POLICY_KINDS


def _known_objects(items: Iterable[_Item], *, is_complete: bool) -> KnownObjects:
    knowledge = KnownObjects(is_complete=is_complete)
    for item in items:
        if isinstance(item, _ManifestItem):
            knowledge.add(item.subject)
    return knowledge


def _findings(
    items: Iterable[_Item], known_objects: KnownObjects, summary: Summary
) -> Iterator[Finding]:
    for item in track(items, "objects checked"):
        if isinstance(item, Finding):
            found = [item]
        else:
            summary.objects += 1
            found = check_manifest(item.subject, item.document, known_objects)
        summary.count(found)
        yield from found


def _unreadable(file: str, error: Unreadable) -> Finding:
    return Finding(level=Level.UNREADABLE, file=file, line=error.line, message=error.reason)
