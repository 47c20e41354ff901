"""The chart's templates, written from `manifests`: one for each file, as it is, but for the values.

Texts are replaced, not objects, so that a template reads like its manifest, comments included. Each
replacement must find its text as often as its row says. Without this, a changed manifest would make
a value that has no effect.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from .narrowing import narrow

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
CHART = ROOT / "charts" / "reprieve"
MONITORING = MANIFESTS / "components" / "monitoring"

_HEADER = "# Written by `make chart-templates` from manifests/{}: change that file.\n"
_LABELS = """\
app.kubernetes.io/part-of: reprieve
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
"""
"""What the base's kustomization adds to each object and to the pods."""

IMAGE = '{{ include "reprieve.image" . | quote }}'


class ManifestError(Exception):
    """A manifest does not have the text that a value replaces."""


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A text of a manifest, as a pattern for whole lines, and what the template has instead."""

    pattern: str
    template: str
    count: int = 1
    """How often the text is there; 0: at least once."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A manifest of which a template is written."""

    file: str
    """Its path below `manifests`."""
    template: str
    """The name of the template."""
    replacements: tuple[Replacement, ...] = ()
    condition: str = ""
    """With what the objects are installed, as an expression; empty: always."""
    transform: Callable[[str], str] = str
    """What is done with the text before the replacements."""
    has_actions: bool = False
    """The text has actions of other templates, which `transform` makes literal."""


def _pod_values(program: str) -> tuple[Replacement, ...]:
    """Return what an admin may set of the pods of one Deployment."""
    values = f".Values.{program}"
    optional = ("priorityClassName", "nodeSelector", "tolerations", "affinity")
    return (
        Replacement(
            pattern=r"  replicas: \d+\n", template=f"  replicas: {{{{ {values}.replicas }}}}\n"
        ),
        Replacement(
            pattern=r"      enableServiceLinks: false\n",
            template="      enableServiceLinks: false\n"
            + _optional(".Values.imagePullSecrets", "imagePullSecrets", 6)
            + "".join(_optional(f"{values}.{name}", name, 6) for name in optional),
        ),
        Replacement(
            pattern=r"        imagePullPolicy: IfNotPresent\n",
            template="        imagePullPolicy: {{ .Values.image.pullPolicy }}\n",
        ),
    )


def _optional(value: str, key: str, indent: int) -> str:
    """Return lines with `key`, as far as the value is set."""
    return (
        f"{' ' * indent}{{{{- with {value} }}}}\n"
        f"{' ' * indent}{key}: {{{{- toYaml . | nindent {indent + 2} }}}}\n"
        f"{' ' * indent}{{{{- end }}}}\n"
    )


def _resources(value: str) -> Replacement:
    return Replacement(
        pattern=r"        resources:\n(?:          .*\n)+",
        template=f"        resources: {{{{- toYaml {value} | nindent 10 }}}}\n",
    )


def _arguments(program: str, value: str) -> Replacement:
    command = f'        command: ["reprieve-{program}"]\n'
    return Replacement(pattern=re.escape(command), template=command + _optional(value, "args", 8))


def _switch(pattern: str, value: str, variable: str, *, lists_others: bool = False) -> Replacement:
    """Return the variable that turns on a part; with `lists_others`, the list has more of them."""
    name = "        env:\n"
    lines = f'        - name: {variable}\n          value: "true"\n'
    begin, end = f"        {{{{- if .Values.{value} }}}}\n", "        {{- end }}\n"
    inner = begin + lines + end
    return Replacement(
        pattern=pattern, template=name + inner if lists_others else begin + name + lines + end
    )


def _literal(text: str) -> str:
    """Return a text with actions of its own, as those of alerts, so that it stays as it is."""
    return text.replace("{{", '{{ "{{" }}')


def _as_config_map(dashboard: str) -> str:
    """Return the ConfigMap that the component's kustomization generates of the dashboard."""
    (found,) = yaml.safe_load((MONITORING / "kustomization.yaml").read_text(encoding="utf-8"))[
        "configMapGenerator"
    ]
    (file,) = found["files"]
    metadata = {
        "name": found["name"],
        "namespace": found["namespace"],
        "labels": found["options"]["labels"],
    }
    head = yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, sort_keys=False
    )
    lines = "".join(f"    {line}\n" for line in dashboard.splitlines())
    return f"{head}data:\n  {file.partition('=')[0]}: |\n{_literal(lines)}"


_IMAGES = Replacement(pattern=r"(?<=: )reprieve:\d+\.\d+\.\d+(?=\n)", template=IMAGE, count=0)

SOURCES = (
    Source(
        file="base/namespace.yaml", template="namespace.yaml", condition=".Values.createNamespace"
    ),
    Source(file="base/guard.yaml", template="guard.yaml"),
    Source(file="base/program-limits.yaml", template="program-limits.yaml"),
    Source(file="base/webhooks-rbac.yaml", template="webhooks-rbac.yaml"),
    Source(
        file="base/webhooks.yaml",
        template="webhooks.yaml",
        replacements=(
            *_pod_values("webhooks"),
            _IMAGES,
            _resources(
                "(ternary .Values.extender.resources .Values.webhooks.resources"
                " .Values.extender.enabled)"
            ),
            _arguments("webhooks", ".Values.webhooks.args"),
            _switch(r"        env:\n", "extender.enabled", "REPRIEVE_EXTENDER", lists_others=True),
        ),
    ),
    Source(
        file="base/webhook-configurations.yaml",
        template="webhook-configurations.yaml",
        transform=partial(narrow, overlay=MANIFESTS / "overlays" / "cel"),
        replacements=(
            Replacement(
                pattern=r"(?m)^  failurePolicy: Ignore$",
                template="  failurePolicy: {{ .Values.failurePolicy }}",
                count=0,
            ),
            Replacement(
                pattern=r"(?<=request\.userInfo\.username in )\['system:kube-scheduler'.*\]",
                template='{{ include "reprieve.schedulers" . }}',
            ),
        ),
    ),
    Source(file="base/operator-rbac.yaml", template="operator-rbac.yaml"),
    Source(
        file="base/operator.yaml",
        template="operator.yaml",
        replacements=(
            *_pod_values("operator"),
            _IMAGES,
            _resources(".Values.operator.resources"),
            _arguments("operator", ".Values.operator.args"),
            _switch(r"(?=        ports:\n)", "ui.enabled", "REPRIEVE_UI"),
        ),
    ),
    Source(file="base/users-rbac.yaml", template="users-rbac.yaml"),
    Source(
        file="base/network-policies.yaml",
        template="network-policies.yaml",
        condition=".Values.networkPolicies.enabled",
        replacements=(
            Replacement(
                pattern=r"    - namespaceSelector:\n        matchLabels:\n +metrics: enabled\n",
                template="    - namespaceSelector:"
                ' {{- include "reprieve.metricsNamespaces" . | nindent 8 }}\n',
                count=0,
            ),
        ),
    ),
    Source(
        file="components/extender/rbac.yaml",
        template="extender-rbac.yaml",
        condition=".Values.extender.enabled",
    ),
    Source(
        file="overlays/cel/policies.yaml",
        template="cel-policies.yaml",
        condition="and .Values.cel.enabled (not .Values.cel.ownPolicies)",
    ),
    *(
        Source(
            file=f"components/monitoring/{name}.yaml",
            template=f"monitoring-{name}.yaml",
            condition=".Values.monitoring.enabled",
            transform=_literal,
            has_actions=True,
        )
        for name in ("account", "podmonitor", "alerts")
    ),
    Source(
        file="components/monitoring/dashboard.json",
        template="monitoring-dashboard.yaml",
        condition=".Values.monitoring.enabled",
        transform=_as_config_map,
        has_actions=True,
    ),
    Source(file="components/ui/rbac.yaml", template="ui-rbac.yaml", condition=".Values.ui.enabled"),
    Source(
        file="components/class-priorities/priorityclasses.yaml",
        template="priorityclasses.yaml",
        condition=".Values.classPriorities.enabled",
    ),
)
"""Each file of the base, and of the overlay and the components that a value installs."""


def render() -> Mapping[str, str]:
    """Return the text of each template by its name."""
    return {source.template: "".join(_render(source)) for source in SOURCES}


def base_files() -> list[str]:
    """Return the files that the base's kustomization lists."""
    text = (MANIFESTS / "base" / "kustomization.yaml").read_text(encoding="utf-8")
    return [f"base/{name}" for name in yaml.safe_load(text)["resources"]]


def _render(source: Source) -> Iterator[str]:
    text = (MANIFESTS / source.file).read_text(encoding="utf-8")
    if "{{" in text and not source.has_actions:
        raise ManifestError(f"{source.file}: has {{{{, which begins an action of a template")
    text = source.transform(text)
    for replacement in source.replacements:
        text = _replace(text, replacement, source.file)
    yield _HEADER.format(source.file)
    if source.condition:
        yield f"{{{{- if {source.condition} }}}}\n"
    if source.file.startswith("base/"):
        text = "---\n".join(map(_with_labels, re.split(r"(?m)^---\n", text)))
    yield text
    if source.condition:
        yield "{{- end }}\n"


def _replace(text: str, replacement: Replacement, file: str) -> str:
    replaced, found = re.subn(replacement.pattern, lambda _: replacement.template, text)
    if found != (replacement.count or max(found, 1)):
        raise ManifestError(
            f"{file}: has {found} times the text {replacement.pattern!r} of a value of the chart, "
            f"expected {replacement.count or 'at least one'}; see hack/distribution/templates.py"
        )
    return replaced


def _with_labels(document: str) -> str:
    """Add the labels of the base's kustomization to an object, and to the pods of a Deployment."""
    if not re.search(r"(?m)^  labels:$", document):
        document = re.sub(r"(?m)^metadata:\n", "metadata:\n  labels:\n", document)
    return re.sub(r"(?m)^( *)labels:\n", _and_labels, document)


def _and_labels(found: re.Match[str]) -> str:
    indent = found[1] + "  "
    return found[0] + "".join(indent + line for line in _LABELS.splitlines(keepends=True))
