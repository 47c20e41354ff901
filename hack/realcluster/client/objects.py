"""Reads and writes objects over a kept connection, for tests and other programs that do so often.

A kubectl process takes a tenth of a second of a processor, and an API server computes its whole
OpenAPI document for the first `kubectl apply`. A test that polls with kubectl takes a processor
from the programs that it waits for. kubectl stays for whatever a user types.
"""

from __future__ import annotations

import base64
import http.client
import json
import select
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from realcluster.errors import ClusterError

Json = Any
NOT_PLAIN = object()
"""`Client.get` cannot do what the words ask for: ask kubectl."""
TOKEN_SECONDS = 24 * 60 * 60
"""How long a token of a ServiceAccount is valid. By default, it is an hour, which a long chaos run
outlasts: its operator could then write nothing any more.
"""
_TIMEOUT_SECONDS = 60.0
_LAG_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_UNKNOWN_PRIORITY_CLASS = "no PriorityClass with name"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML


class RefusedError(ClusterError):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Resource:
    """Where the API server serves the objects of one kind."""

    path: str
    name: str
    kind: str
    api_version: str
    namespaced: bool

    def url(self, namespace: str, name: str = "", subresource: str = "", **query: str) -> str:
        """Return the path of one object or, without `name`, of a list.

        Without `namespace`, the list has the objects of all namespaces.
        """
        parts = [self.path.removeprefix("/")]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.name, name, subresource) if part]
        said = {key: text for key, text in query.items() if text}
        return "/" + "/".join(parts) + (f"?{urlencode(said)}" if said else "")


@dataclass(frozen=True)
class Wanted:
    """The objects that a `kubectl get` selects."""

    kind: str
    name: str = ""
    namespace: str = "default"
    selector: str = ""
    field_selector: str = ""


_ALL_NAMESPACES = frozenset(("-A", "--all-namespaces"))
_OPTIONS = {
    "-n": "namespace",
    "--namespace": "namespace",
    "-l": "selector",
    "--selector": "selector",
    "--field-selector": "field_selector",
}


def parse(words: Sequence[str]) -> Wanted | None:
    """Parse the words after `kubectl get`; return `None` if they are no plain read."""
    found: dict[str, str] = {}
    names: list[str] = []
    left = iter(words)
    for word in left:
        option, equals, text = word.partition("=")
        if word in _ALL_NAMESPACES:
            found["namespace"] = ""
        elif option in _OPTIONS:
            found[_OPTIONS[option]] = text if equals else next(left, "")
        elif word.startswith("-"):
            return None
        else:
            names.append(word)
    if not 1 <= len(names) <= 2 or any(sign in name for name in names for sign in ",/"):
        return None
    return Wanted(*names, **found)


class Client:
    """Acts with the token of one kubeconfig. Each thread has a connection of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._read_at: object = None
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._kept = threading.local()

    def has_token(self) -> bool:
        """Read the kubeconfig if it changed; say whether it holds one server and one token."""
        with self._lock:
            try:
                stat = self._kubeconfig.stat()
                changed_at = (stat.st_mtime_ns, stat.st_ino)
                if changed_at != self._read_at:
                    self._read(json.loads(self._kubeconfig.read_text()))
                    self._read_at = changed_at
            except (OSError, ValueError, LookupError, TypeError):
                return False
            return True

    def get(self, words: Sequence[str], *, ignore_not_found: bool = False) -> Json:
        """Return what `kubectl get WORDS -o json` prints, decoded.

        Returns `None` if `ignore_not_found` and the named object does not exist, `NOT_PLAIN` for
        anything that kubectl does better, also an error message.
        """
        wanted = parse(words)
        if wanted is None or not self.has_token():
            return NOT_PLAIN
        try:
            resource = self._resource(wanted.kind)
            selectors = {"labelSelector": wanted.selector, "fieldSelector": wanted.field_selector}
            document = self._call("GET", resource.url(wanted.namespace, wanted.name, **selectors))
        except LookupError:
            return NOT_PLAIN
        except RefusedError as refused:
            missing = refused.status == HTTPStatus.NOT_FOUND and wanted.name
            return None if missing and ignore_not_found else NOT_PLAIN
        return shown(document) if wanted.name else listed(document, resource)

    def create(self, *documents: Json, namespace: str = "default") -> None:
        """Create objects, in their own namespace if they name one; raises ClusterError."""
        self._need_token()
        for document in documents:
            own = document["metadata"].get("namespace", namespace)
            url = self._resource_of(document).url(own, fieldValidation="Strict")
            self._post_once_known(url, document)

    def _post_once_known(self, url: str, document: Json) -> None:
        """Create an object; repeat it while its PriorityClass is new to the API server.

        The API server's admission learns of a PriorityClass a moment after it is created.
        """
        deadline = time.monotonic() + _LAG_SECONDS
        while True:
            try:
                self._call("POST", url, document)
            except RefusedError as refused:
                if _UNKNOWN_PRIORITY_CLASS not in str(refused) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def apply(self, *documents: Json) -> None:
        """Apply objects on the server's side, as `kubectl apply --server-side --force-conflicts`.

        Raises ClusterError.
        """
        self._need_token()
        said = {"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"}
        for document in documents:
            metadata = document["metadata"]
            resource = self._resource_of(document)
            url = resource.url(metadata.get("namespace", "default"), metadata["name"], **said)
            self._call("PATCH", url, document, content_type=_APPLY_PATCH)

    def replace(self, document: Json) -> None:
        """Replace an object whole, or create it; raises ClusterError."""
        self._need_token()
        metadata = document["metadata"]
        url = self._resource_of(document).url(metadata.get("namespace", ""), metadata["name"])
        try:
            self._call("PUT", url, document)
        except RefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            self.create(document)

    def patch(
        self, kind: str, name: str, patch: Json, *, namespace: str = "", subresource: str = ""
    ) -> None:
        """Merge `patch` into an object; raises ClusterError."""
        self._need_token()
        url = self._resource(kind).url(namespace, name, subresource)
        self._call("PATCH", url, patch, content_type=_MERGE_PATCH)

    def delete(self, kind: str, name: str, *, namespace: str = "") -> None:
        """Delete an object without waiting, unless it does not exist; raises ClusterError."""
        self._need_token()
        try:
            self._call("DELETE", self._resource(kind).url(namespace, name))
        except RefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise

    def create_token(self, account: str, namespace: str) -> str:
        """Return a fresh token of a ServiceAccount, for `TOKEN_SECONDS`; raises ClusterError."""
        self._need_token()
        url = self._resource("serviceaccount").url(namespace, account, "token")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        return str(self._call("POST", url, request)["status"]["token"])

    def _need_token(self) -> None:
        if not self.has_token():
            raise ClusterError(f"{self._kubeconfig} has no token of its own")

    def _read(self, config: Json) -> None:
        (cluster,), (user,), (context,) = config["clusters"], config["users"], config["contexts"]
        if "namespace" in context["context"]:
            raise LookupError("kubectl knows the default namespace")
        address = urlsplit(cluster["cluster"]["server"])
        authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        self._token = user["user"]["token"]
        self._host, self._port = str(address.hostname), address.port or 443
        self._context = ssl.create_default_context(cadata=authority)
        # The API server's self-signed certificate lacks extensions that Python 3.13 requires.
        self._context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        self._resources, self._kept = {}, threading.local()

    def _resource(self, kind: str) -> Resource:
        """Return the resource that kubectl would choose; raises LookupError if none is served."""
        wanted = kind.lower()
        if wanted not in self._resources:
            found: dict[str, Resource] = {}
            for root in ("/api", "/apis"):
                document = self._call("GET", root, accept=_DISCOVERY)
                for resource, names in discovered(document, root):
                    for name in names:
                        found.setdefault(name, resource)
            self._resources = found
        return self._resources[wanted]

    def _resource_of(self, document: Json) -> Resource:
        group, _, version = str(document["apiVersion"]).rpartition("/")
        return self._resource(document["kind"] + (f".{version}.{group}" if group else ""))

    def _call(
        self,
        method: str,
        url: str,
        body: Json = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Json:
        """Return the decoded answer; raises ClusterError if there is none, or an error."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        connection = self._connection()
        try:
            connection.request(method, url, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, document = answer.status, json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            raise ClusterError(f"{method} {url}: {error!r}") from None
        if status >= HTTPStatus.BAD_REQUEST:
            raise RefusedError(status, f"{method} {url}: {document.get('message', status)}")
        return document

    def _connection(self) -> _Connection:
        """Return this thread's connection, a new one if the server has closed the last one."""
        kept: _Connection | None = getattr(self._kept, "connection", None)
        if kept is not None and kept.sock is not None and not _is_readable(kept.sock):
            return kept
        if kept is not None:
            kept.close()
        made = _Connection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._context)
        self._kept.connection = made
        return made


class _Connection(http.client.HTTPSConnection):
    """Closes itself with the last reference. Without this, Python warns, which fails a test."""

    def __del__(self) -> None:
        self.close()


def _is_readable(sock: ssl.SSLSocket) -> bool:
    """Between two requests, the only thing to read is the end of the connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def discovered(document: Json, root: str) -> Iterator[tuple[Resource, list[str]]]:
    """Yield each resource with the names that kubectl knows for it, preferred versions first."""
    for group in document["items"]:
        group_name = group.get("metadata", {}).get("name", "")
        for version in group["versions"]:
            number = version["version"]
            api_version = f"{group_name}/{number}" if group_name else number
            suffixes = ["", f".{group_name}", f".{number}.{group_name}"] if group_name else [""]
            for entry in version.get("resources", ()):
                kind, plural = entry["responseKind"]["kind"], entry["resource"]
                namespaced = entry["scope"] == "Namespaced"
                singular, short = entry.get("singularResource", ""), entry.get("shortNames", ())
                names = [name for name in (plural, singular, kind.lower(), *short) if name]
                resource = Resource(f"{root}/{api_version}", plural, kind, api_version, namespaced)
                yield resource, [name + suffix for suffix in suffixes for name in names]


def listed(document: Json, resource: Resource) -> Json:
    """Return a list as kubectl prints it: each item states its kind."""
    said = {"apiVersion": resource.api_version, "kind": resource.kind}
    items = [shown(said | item) for item in document["items"]]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def shown(document: Json) -> Json:
    """Return an object as kubectl prints it."""
    document.get("metadata", {}).pop("managedFields", None)
    return document
