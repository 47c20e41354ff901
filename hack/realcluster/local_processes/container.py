"""A pod's first container as a local process: command, environment, files and final status. Pure.

It follows the kubelet's rules where a workload could notice a difference: `$(VAR)` expansion, the
text of downward-API files, phases and exit codes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any
# (kind, name) -> the data of a ConfigMap or Secret.
Lookup = Mapping[tuple[str, str], Mapping[str, str]]

ANNOTATION = "reprieve.dev/local-process"
INTERPRETER_NAMES = ("python", "python3", "/usr/bin/python", "/usr/bin/python3")
VARIABLE = re.compile(r"\$(\$|\((?P<name>[-._a-zA-Z][-._a-zA-Z0-9]*)\))")
LOST = 255  # what a kubelet reports for a container that has disappeared


@dataclass(frozen=True)
class Folders:
    """Where volumes are.

    `pod` for those that end with the pod, `host` for those that outlive it.
    """

    pod: Path
    host: Path


def is_local(pod: Json) -> bool:
    """Return whether the pod asks for a local process."""
    return bool((pod["metadata"].get("annotations") or {}).get(ANNOTATION) == "true")


def has_ended(pod: Json) -> bool:
    """Return whether the pod's phase is Succeeded or Failed."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def references(pod: Json) -> set[tuple[str, str]]:
    """Return the (kind, name) of ConfigMaps and Secrets that the container and its volumes read."""
    found = set()
    for source in _volume_sources(pod):
        if "configMap" in source:
            found.add(("configmaps", source["configMap"]["name"]))
        if "secret" in source:
            found.add(("secrets", source["secret"].get("secretName") or source["secret"]["name"]))
    for variable in _container(pod).get("env", []):
        for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
            if reference := variable.get("valueFrom", {}).get(key):
                found.add((kind, reference["name"]))
    return found


def environment(pod: Json, data: Lookup, folders: Folders) -> dict[str, str]:
    """Return the container's variables, expanded in order, with local folders for mount paths."""
    values: dict[str, str] = {}
    for variable in _container(pod).get("env", []):
        if "valueFrom" in variable:
            values[variable["name"]] = _value_from(pod, variable["valueFrom"], data)
        else:
            values[variable["name"]] = localize(
                expand(variable.get("value", ""), values), mounts(pod, folders)
            )
    return values


def command(pod: Json, variables: Mapping[str, str], folders: Folders) -> list[str]:
    """Return program and arguments, expanded, with local folders and this Python interpreter."""
    container = _container(pod)
    words = (
        [*container.get("command", []), *container.get("args", [])]
        if container.get("command")
        else ["python3", *container.get("args", [])]
    )
    places = mounts(pod, folders)
    first, *others = [localize(expand(word, variables), places) for word in words]
    return [sys.executable if first in INTERPRETER_NAMES else first, *others]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value.

    `$$` is a dollar sign, and an undefined name stays as it is.
    """

    def value(found: re.Match[str]) -> str:
        return "$" if found["name"] is None else variables.get(found["name"], found[0])

    return VARIABLE.sub(value, text)


def mounts(pod: Json, folders: Folders) -> dict[str, Path]:
    """Return the local folder of each mount path of the first container."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    return {
        mount["mountPath"].rstrip("/"): _volume_folder(pod, volumes[mount["name"]], folders)
        / mount.get("subPath", "")
        for mount in _container(pod).get("volumeMounts", [])
        if mount["name"] in volumes
    }


def localize(word: str, places: Mapping[str, Path]) -> str:
    """Replace a mount path at the start of `word`, or after its first `=` (`--file=/data/x`)."""
    option, equals, rest = word.partition("=")
    if equals and rest.startswith("/"):
        return f"{option}={localize(rest, places)}"
    for path in sorted(places, key=len, reverse=True):
        if word == path or word.startswith(f"{path}/"):
            return f"{places[path]}{word[len(path) :]}"
    return word


def files(pod: Json, data: Lookup, folders: Folders) -> dict[Path, str]:
    """Return the text of each file that the pod's volumes hold at its start."""
    found: dict[Path, str] = {}
    for volume in pod["spec"].get("volumes", []):
        folder = _volume_folder(pod, volume, folders)
        for source in _sources(volume):
            for kind, field in (("configmaps", "configMap"), ("secrets", "secret")):
                if reference := source.get(field):
                    content = data.get((kind, reference.get("secretName") or reference["name"]), {})
                    found |= {
                        folder / path: content[key]
                        for key, path in _items(reference, content)
                        if key in content
                    }
    return found | downward_files(pod, folders)


def downward_files(pod: Json, folders: Folders) -> dict[Path, str]:
    """Return the text of each downward-API file, as of this state of the pod."""
    found = {}
    for volume in pod["spec"].get("volumes", []):
        for source in _sources(volume):
            for item in source.get("downwardAPI", {}).get("items", []):
                if "fieldRef" in item:
                    found[_volume_folder(pod, volume, folders) / item["path"]] = field(
                        pod, item["fieldRef"]["fieldPath"]
                    )
    return found


def field(pod: Json, path: str) -> str:
    """Return the value of a `fieldRef`; "" if the pod has no such field."""
    if keyed := re.fullmatch(r"metadata\.(annotations|labels)\['(.+)'\]", path):
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.annotations", "metadata.labels"):
        # As the kubelet writes it: key="value", quoted as in Go, sorted by key, without a newline
        # at the
        # end.
        values = pod["metadata"].get(path.removeprefix("metadata.")) or {}
        return "\n".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}"
            for key, value in sorted(values.items())
        )
    if path == "status.podIPs":
        return ",".join(entry["ip"] for entry in pod["status"].get("podIPs", []))
    value = pod
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def restarts(pod: Json, exit_code: int) -> bool:
    """Return whether a kubelet would restart the container."""
    policy = pod["spec"].get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def restarted_status(pod: Json, exit_code: int, count: int, started: str, now: str) -> Json:
    """Return the status of a pod whose container ended and runs again, for the `count`th time."""
    ended = {"terminated": _terminated(exit_code, started, now)}
    state = {
        "restartCount": count,
        "lastState": ended,
        "state": {"running": {"startedAt": now}},
        "ready": True,
        "started": True,
    }
    first, *others = pod["status"]["containerStatuses"]
    return {"containerStatuses": [first | state, *others]}


def final_status(pod: Json, exit_code: int, started: str, now: str) -> Json:
    """Return the final status of a pod whose container has ended, as a kubelet writes it."""
    reason = "PodFailed" if exit_code else "PodCompleted"
    conditions = [
        condition
        | (
            {"status": "False", "reason": reason, "lastTransitionTime": now}
            if condition["type"] in ("Ready", "ContainersReady")
            else {}
        )
        for condition in pod["status"].get("conditions", [])
    ]
    first, *others = pod["status"].get("containerStatuses") or [_unknown_container(pod)]
    ended = [
        first | _ended(exit_code, started, now),
        *(other | _ended(0, started, now) for other in others),
    ]
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": conditions,
        "containerStatuses": ended,
    }


def _ended(exit_code: int, started: str, now: str) -> Json:
    return {
        "ready": False,
        "started": False,
        "state": {"terminated": _terminated(exit_code, started, now)},
    }


def _terminated(exit_code: int, started: str, now: str) -> Json:
    reason = "Unknown" if exit_code == LOST else "Error" if exit_code else "Completed"
    return {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}


def _unknown_container(pod: Json) -> Json:
    container = _container(pod)
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": 0,
    }


def _container(pod: Json) -> Json:
    return pod["spec"]["containers"][0]


def _volume_folder(pod: Json, volume: Json, folders: Folders) -> Path:
    if "hostPath" in volume:
        return folders.host / "path" / str(volume["hostPath"]["path"]).strip("/")
    if "persistentVolumeClaim" in volume:
        claim = volume["persistentVolumeClaim"]["claimName"]
        return folders.host / "claim" / str(pod["metadata"]["namespace"]) / str(claim)
    return folders.pod / str(volume["name"])


def _sources(volume: Json) -> Iterator[Json]:
    """Yield the volume, or the parts of a projected one.

    Tokens are not files of a local process.
    """
    yield from volume["projected"].get("sources", []) if "projected" in volume else [volume]


def _volume_sources(pod: Json) -> Iterator[Json]:
    for volume in pod["spec"].get("volumes", []):
        yield from _sources(volume)


def _items(reference: Json, content: Mapping[str, str]) -> list[tuple[str, str]]:
    items = [(item["key"], item["path"]) for item in reference.get("items") or []]
    return items or [(key, key) for key in content]


def _value_from(pod: Json, source: Json, data: Lookup) -> str:
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if reference := source.get(key):
            return data.get((kind, reference["name"]), {}).get(reference["key"], "")
    return ""
