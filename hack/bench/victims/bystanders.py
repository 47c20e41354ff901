"""Fills a cluster with unmarked pods: the first on each node by the API server, the rest as copies.

Through the API server, which decodes, evaluates, answers and audits two writes for each pod, 50,000
pods take seven minutes. A copy in etcd is what the API server would have stored, except for name
and uid. The API server reads what etcd has, as after a restore from a backup.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Callable
from itertools import islice
from typing import Any

from realcluster.errors import ClusterError
from realcluster.state import Cluster

from . import pods

_AT_ONCE = 100
"""Records in one transaction: etcd takes 128, and 1.5 MB."""
_UID = re.compile(rb"[0-9a-f]{8}(?=-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_NUMBERED = "{:08x}"

Document = dict[str, Any]


class Records:
    """The pods of one namespace as etcd stores them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._etcd = http.client.HTTPConnection("127.0.0.1", cluster.port("etcd"), timeout=60)
        self._prefix = f"/registry/pods/{namespace}/"

    def copy(self, models: int, first: int, until: int, done: Callable[[int], None]) -> None:
        """Store pods `first` to `until - 1`: copies of the models, the pods below `models`."""
        known = [self._read(pods.bystander_name(number)) for number in range(min(models, until))]
        records = (
            (number, renamed(known[number % models], number, models))
            for number in range(first, until)
        )
        while batch := list(islice(records, _AT_ONCE)):
            self._call("txn", {"success": [self._put(number, record) for number, record in batch]})
            done(batch[-1][0] + 1)
        self._etcd.close()

    def _read(self, name: str) -> bytes:
        found = self._call("range", {"key": _text(f"{self._prefix}{name}".encode())})
        if not found.get("kvs"):
            raise ClusterError(f"etcd has no pod {name}, so it cannot be copied")
        return base64.b64decode(found["kvs"][0]["value"])

    def _put(self, number: int, record: bytes) -> Document:
        key = f"{self._prefix}{pods.bystander_name(number)}".encode()
        return {"requestPut": {"key": _text(key), "value": _text(record)}}

    def _call(self, verb: str, body: Document) -> Document:
        self._etcd.request("POST", f"/v3/kv/{verb}", json.dumps(body))
        answer = self._etcd.getresponse()
        text = answer.read()
        if answer.status != http.client.OK:
            raise ClusterError(
                f"etcd: {verb}: {answer.status} {text[:300].decode(errors='replace')}"
            )
        found: Document = json.loads(text)
        return found


def renamed(record: bytes, number: int, models: int) -> bytes:
    """Return the record of a model as that of pod `number`.

    Name and uid keep their lengths, because a length precedes each text.
    """
    name, own = pods.bystander_name(number % models).encode(), pods.bystander_name(number).encode()
    return _UID.sub(_NUMBERED.format(number).encode(), record.replace(name, own), count=1)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
