"""What the store of a reflector tells of objects that are gone."""

import json

from reprieve_runtime.client.api import PartialObjectMetadata
from reprieve_runtime.client.reflector_store import ReflectorStore
from reprieve_runtime.client.stored import Key, read_event

POD: Key = ("team", "victim")


def test_an_object_that_goes_after_a_list_that_broke_off_is_reported_once() -> None:
    """Without this, the next list would report it again: the victims' watch ended by that."""
    gone = list[Key]()
    store = ReflectorStore[PartialObjectMetadata, str](
        lambda found: found.metadata.name or "", gone.append
    )
    metadata = {"name": POD[1], "namespace": POD[0]}

    def event(kind: str) -> None:
        line = json.dumps({"type": kind, "object": {"metadata": metadata}}).encode()
        store.handle_event(read_event(line, PartialObjectMetadata))

    event("ADDED")
    broken = store.begin_list()
    broken.handle_event(
        read_event(
            json.dumps({"type": "ADDED", "object": {"metadata": metadata}}).encode(),
            PartialObjectMetadata,
        )
    )
    store.abandon_list(broken)
    event("DELETED")
    assert gone == [POD]
    store.finish_list(store.begin_list())
    assert gone == [POD]
