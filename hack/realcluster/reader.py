"""Reads objects from the API server as `kubectl get -o json` does, over a connection that is kept: for polls.

A kubectl process takes a tenth of a second of a processor. A test that polls with one takes a processor from the
programs that it waits for. Whatever is not a plain read is kubectl's: `Reader.get` then returns `UNREADABLE`.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from .errors import ClusterError

Json = Any
UNREADABLE = object()
"""Stands for: this is no plain read, ask kubectl."""
_TIMEOUT_SECONDS = 30.0
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class Resource:
    """Where the API server serves the objects of one kind."""

    path: str
    name: str
    kind: str
    api_version: str
    namespaced: bool

    def url(self, namespace: str, name: str, query: dict[str, str]) -> str:
        """Return the path of one object or, without `name`, of a list; without `namespace`, of all namespaces."""
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        one = f"/{name}" if name else ""
        return f"{self.path}{within}/{self.name}{one}" + (f"?{urlencode(query)}" if query else "")


@dataclass(frozen=True)
class Wanted:
    """What the words of `kubectl get` ask for."""

    kind: str
    name: str = ""
    namespace: str = "default"
    selector: str = ""
    field_selector: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The selectors, as the API server calls them."""
        said = {"labelSelector": self.selector, "fieldSelector": self.field_selector}
        return {key: text for key, text in said.items() if text}


def parse(words: Sequence[str]) -> Wanted | None:
    """Return what the words after `get` ask for, `None` where they ask for more than a plain read."""
    found: dict[str, str] = {}
    names: list[str] = []
    left = iter(words)
    for word in left:
        if word in _ALL:
            found["namespace"] = ""
        elif field := _OPTIONS.get(word):
            found[field] = next(left, "")
        elif word.partition("=")[0] in _OPTIONS and "=" in word:
            option, _, text = word.partition("=")
            found[_OPTIONS[option]] = text
        elif word.startswith("-"):
            return None
        else:
            names.append(word)
    if not 1 <= len(names) <= 2 or any(sign in name for name in names for sign in ",/"):
        return None
    return Wanted(*names, **found)


_ALL = frozenset(("-A", "--all-namespaces"))
_OPTIONS = {
    "-n": "namespace",
    "--namespace": "namespace",
    "-l": "selector",
    "--selector": "selector",
    "--field-selector": "field_selector",
}


class Reader:
    """Reads with the token of one kubeconfig. Each thread keeps a connection of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._file = kubeconfig
        self._written: object = None
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._kept = threading.local()

    def get(self, words: Sequence[str], *, ignore_not_found: bool = False) -> Json:
        """Return what `kubectl get WORDS -o json` prints, decoded; `None` for an object that may be missing and is."""
        wanted = parse(words)
        if wanted is None or not self._is_current():
            return UNREADABLE
        resource = self._resource(wanted.kind)
        if resource is None:
            return UNREADABLE
        status, document = self._call(resource.url(wanted.namespace, wanted.name, wanted.query))
        if status == HTTPStatus.NOT_FOUND and ignore_not_found and wanted.name:
            return None
        if status != HTTPStatus.OK:
            return UNREADABLE  # kubectl says it better
        return _shown(document) if wanted.name else listed(document, resource)

    def _is_current(self) -> bool:
        """Read the kubeconfig again where it has changed; say whether it is one with a token and nothing else."""
        with self._lock:
            try:
                stat = self._file.stat()
                written = (stat.st_mtime_ns, stat.st_ino)
                if written != self._written:
                    self._read(json.loads(self._file.read_text()))
                    self._written = written
            except (OSError, ValueError, KeyError, LookupError, TypeError):
                return False
            return True

    def _read(self, config: Json) -> None:
        (cluster,), (user,), (context,) = config["clusters"], config["users"], config["contexts"]
        if "namespace" in context["context"]:
            raise LookupError("kubectl knows which namespace it is")
        address = urlsplit(cluster["cluster"]["server"])
        authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        self._token = user["user"]["token"]
        self._host, self._port = str(address.hostname), address.port or 443
        self._context = ssl.create_default_context(cadata=authority)
        # The API server's self-signed certificate lacks extensions that Python 3.13 began to insist on.
        self._context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        self._resources, self._kept = {}, threading.local()

    def _resource(self, kind: str) -> Resource | None:
        wanted = kind.lower()
        if wanted not in self._resources:
            found: dict[str, Resource] = {}
            for path in ("/api", "/apis"):
                status, document = self._call(path, _DISCOVERY)
                if status != HTTPStatus.OK:
                    return None
                for resource, names in discovered(document, path):
                    for name in names:
                        found.setdefault(name, resource)
            self._resources = found
        return self._resources.get(wanted)

    def _call(self, path: str, accept: str = "application/json") -> tuple[int, Json]:
        """Return status and document; raises ClusterError where the API server does not answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        for connection in (kept, None):
            if connection is None and kept is not None:
                kept.close()
            using = connection or self._connection()
            try:
                using.request("GET", path, headers=headers)
                answer = using.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, ValueError, http.client.HTTPException) as error:
                using.close()
                self._kept.connection = None
                failure = error
        raise ClusterError(f"GET {path}: {failure}")

    def _connection(self) -> http.client.HTTPSConnection:
        made = _Connection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._context)
        self._kept.connection = made
        return made


class _Connection(http.client.HTTPSConnection):
    """Closes itself with the last reference. Without this, Python warns of an open socket, which fails a test."""

    def __del__(self) -> None:
        self.close()


def discovered(document: Json, root: str) -> Iterator[tuple[Resource, list[str]]]:
    """Yield each resource with the names by which kubectl knows it, those of preferred versions first."""
    for group in document["items"]:
        group_name = group.get("metadata", {}).get("name", "")
        for version in group["versions"]:
            number = version["version"]
            api_version = f"{group_name}/{number}" if group_name else number
            for entry in version.get("resources", ()):
                kind = entry["responseKind"]["kind"]
                namespaced = entry["scope"] == "Namespaced"
                resource = Resource(
                    f"{root}/{api_version}", entry["resource"], kind, api_version, namespaced
                )
                short = [
                    entry["resource"],
                    entry.get("singularResource", ""),
                    kind.lower(),
                    *entry.get("shortNames", ()),
                ]
                names = [name for name in short if name]
                suffixes = ["", f".{group_name}", f".{number}.{group_name}"] if group_name else [""]
                yield resource, [name + suffix for suffix in suffixes for name in names]


def listed(document: Json, resource: Resource) -> Json:
    """Return a list as kubectl prints it: each item says what it is."""
    said = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [_shown(said | item) for item in document["items"]],
    }


def _shown(document: Json) -> Json:
    document.get("metadata", {}).pop("managedFields", None)
    return document
