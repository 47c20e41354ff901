"""Releases the licence of each pod that ends: before SIGTERM where the pod asks for that."""

import os
import urllib.request
from typing import Any

import kopf

import reprieve

SERVER = os.environ["LICENCE_SERVER"]


@reprieve.on.eviction(finalizer="licences.example.com/release")
def release(uid: str, name: str, turn: reprieve.CleanerTurn, logger: Any, **_: Any) -> None:
    """Return the licence; releasing it twice does no harm."""
    request = urllib.request.Request(f"{SERVER}/leases/{uid}", method="DELETE")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except OSError as error:
        raise kopf.TemporaryError(f"the licence server did not answer: {error}", 5) from error
    logger.info("released the licence of %s (%s)", name, turn)
