"""A network namespace for one block: the machine's network is out of reach, and then back."""

import os
import socket
from pathlib import Path

import pytest

from realcluster.real_nodes import kernel


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network namespace")
def test_a_network_of_its_own_has_loopback_and_nothing_of_the_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        address = outside.getsockname()
        with kernel.own_network():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            routes = Path("/proc/thread-self/net/route").read_text()
            assert len(routes.splitlines()) == 1, "only the heading"
            with socket.create_server(("127.0.0.1", 0)) as inside:
                socket.create_connection(inside.getsockname()).close()
        socket.create_connection(address).close()
