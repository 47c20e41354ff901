"""`reprieve render`: what an admin applies beside the manifests.

`policies` writes the rules as CEL, for `manifests/overlays/cel` or an overlay of your own.
`policy-defaults` writes the ConfigMap with every setting.
"""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

import click
import yaml

from reprieve_cli.checking.known_objects import POLICY_MAP
from reprieve_cli.manifests import documents, manifest_objects, sources
from reprieve_cli.manifests.manifest_objects import ManifestObject
from reprieve_cli.manifests.sources import Unreadable
from reprieve_cli.output.finding import printable
from reprieve_policy.cel import policies
from reprieve_policy.config import settings as policy_settings
from reprieve_policy.config.settings import PolicySettings

_HEADER = """\
# Written by `reprieve render policies`: change the rules, or the settings, and write it again.
"""
_DEFAULTS = "policy-defaults.yaml"


@click.group(name="render")
def command() -> None:
    """Write the rules as admission policies, or the cluster's policy with every default."""


@command.command(name="policies")
@click.option(
    "--policy",
    metavar="FILE|DIR",
    type=click.Path(exists=True, path_type=Path),
    help="File or folder with the cluster's ConfigMap reprieve-policy; default: its defaults.",
)
@click.option(
    "-o", "--output", metavar="FILE", type=click.File("w", encoding="utf-8", lazy=True), default="-"
)
def render_policies(policy: Path | None, output: Any) -> None:
    """Write the rules as ValidatingAdmissionPolicies and MutatingAdmissionPolicies, with bindings.

    The policies contain the limits of the settings: after each change of the ConfigMap, render and
    apply them again.
    """
    settings = PolicySettings() if policy is None else _read_settings(policy)
    output.write(_HEADER)
    yaml.dump_all(
        policies.render(settings),
        output,
        Dumper=_Dumper,
        sort_keys=False,
        width=10**6,
        allow_unicode=True,
    )


@command.command(name="policy-defaults")
@click.option(
    "-o", "--output", metavar="FILE", type=click.File("w", encoding="utf-8", lazy=True), default="-"
)
def render_policy_defaults(output: Any) -> None:
    """Write the ConfigMap reprieve-policy with every setting, its default and what it does.

    Reprieve needs no such ConfigMap: a setting that it leaves out has its default. Keep what you
    change, and delete the other lines.
    """
    output.write(resources.files(__package__).joinpath(_DEFAULTS).read_text(encoding="utf-8"))


def _read_settings(path: Path) -> PolicySettings:
    found = [item.resource for item in _manifest_objects(path) if item.name == POLICY_MAP]
    if len(found) != 1 or found[0] is None:
        _fail(f"{path}: must have one readable ConfigMap {POLICY_MAP.name}, has {len(found)}")
    parsed = policy_settings.parse(found[0].data or {})
    if not isinstance(parsed, PolicySettings):
        _fail(*map(str, parsed))
    return parsed


def _manifest_objects(path: Path) -> Iterator[ManifestObject]:
    for text in sources.read_all([str(path)], recursive=True):
        if isinstance(text.content, Unreadable):
            _fail(f"{text.file}: {text.content.reason}")
        for item in documents.read_unless_of_another_purpose(text, text.content) or ():
            if isinstance(item, Unreadable):
                _fail(f"{text.file}: {item.reason}")
            yield manifest_objects.build(item[1], POLICY_MAP.namespace)


def _fail(*sentences: str) -> NoReturn:
    raise click.ClickException("\n".join(map(printable, sentences)))


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and lists of short texts in one line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


def _list(dumper: yaml.SafeDumper, values: list[object]) -> yaml.SequenceNode:
    are_short = all(isinstance(value, str) and "\n" not in value for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=are_short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
