"""`reprieve render policies`: the rules as CEL, for `manifests/overlays/cel` or an overlay of one's own."""

from pathlib import Path
from typing import Any

import click
import yaml

from reprieve_policy import settings as policy_settings
from reprieve_policy.cel import policies
from reprieve_policy.settings import PolicySettings

_HEADER = """\
# Written by `reprieve render policies`: change the rules, or the settings, and write it again.
"""
_POLICY_MAP = "reprieve-policy"


@click.group(name="render")
def command() -> None:
    """Write the rules in another language."""


@command.command(name="policies")
@click.option(
    "--policy",
    metavar="FILE|DIR",
    type=click.Path(exists=True, path_type=Path),
    help="Where the cluster's ConfigMap reprieve-policy is; without it, its defaults hold.",
)
@click.option("-o", "--output", metavar="FILE", type=click.File("w", encoding="utf-8", lazy=True), default="-")
def render_policies(policy: Path | None, output: Any) -> None:
    """Write ValidatingAdmissionPolicies and MutatingAdmissionPolicies, with their bindings, as YAML.

    The settings' limits stand in them as numbers: after a change of the ConfigMap, render and apply them again.
    """
    settings = PolicySettings() if policy is None else _read_settings(policy)
    documents = policies.render(settings)
    output.write(_HEADER)
    yaml.dump_all(documents, output, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)


def _read_settings(path: Path) -> PolicySettings:
    files = sorted(path.glob("*.y*ml")) if path.is_dir() else [path]
    try:
        found = [document for file in files for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise click.ClickException(f"{path}: cannot be read: {error}") from error
    maps = [document for document in found if _is_policy_map(document)]
    if len(maps) != 1:
        raise click.ClickException(f"{path}: must have one ConfigMap {_POLICY_MAP}, has {len(maps)}")
    data = maps[0].get("data") or {}
    parsed = policy_settings.parse({str(key): str(value) for key, value in data.items()})
    if isinstance(parsed, PolicySettings):
        return parsed
    raise click.ClickException("\n".join(map(str, parsed)))


def _is_policy_map(document: object) -> bool:
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return False
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == _POLICY_MAP


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines as they are read, lists in one line where they are short."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _list(dumper: yaml.SafeDumper, values: list[object]) -> yaml.SequenceNode:
    are_short = all(isinstance(value, str) and "\n" not in value for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=are_short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
