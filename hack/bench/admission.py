"""`make bench-admission`: what each way to enforce a policy adds to the creation of a pod.

The measurements use a real API server. Rounds go through all contenders, each round beginning with
another one. In a turn, only that contender's policy is in place. Afterwards, the load generator
calls the two servers directly, as often as a busy cluster would in an hour, to see their memory
grow.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from realcluster import command, lifecycle, state
from realcluster.binaries import build, pins
from realcluster.client import api
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.install import BASE
from realcluster.progress import Progress
from realcluster.state import Cluster
from reprieve_certs import bundle

from . import added, contenders, pods, policies, servers, soak
from .added import AdmissionTurn
from .policies import InForce, Policy
from .servers import Server
from .soak import Growth

NOTHING = "no policy"
BY_HAND = "VAP by hand"
CEL = "Reprieve, CEL overlay"
VALIDATING = "Reprieve, validating"
BOTH = "Reprieve, both"
PEER_VALIDATING = "controller-runtime, validating"
PEER_BOTH = "controller-runtime, both"
_INSIDE = (NOTHING, BY_HAND, CEL)
"""Those that the API server evaluates itself."""
_COMPARED = ((VALIDATING, PEER_VALIDATING), (BOTH, PEER_BOTH))
_WARM_UP_CLIENTS, _WARM_UP_SECONDS = 4, 0.3
"""Few connections.

Abandoned calls of many would still be running in the next turn of one client.
"""
_VALIDATING, _MUTATING = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"


@dataclass(frozen=True)
class AdmissionOptions:
    """The command line's options."""

    rounds: int
    seconds: float
    copies: int
    clients: tuple[int, ...]
    soak_reviews: int
    json_file: Path | None
    cluster: str


@dataclass(frozen=True)
class AdmissionBench:
    """The cluster, the servers beside it, and the client that creates pods."""

    cluster: Cluster
    reprieve: Server
    peer: Server
    create: Sequence[str]

    def turn(self, contender: str, clients: int, number: int, seconds: float) -> AdmissionTurn:
        """Create pods for a while."""
        server = self.peer if contender in (PEER_VALIDATING, PEER_BOTH) else self.reprieve
        failed = self._failed_open()
        before = server.cpu_seconds(), self._api_server_cpu_seconds()
        words = [*self.create, "-clients", str(clients), "-seconds", str(seconds)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{contender}, {clients} clients: {done.stderr.strip()[:1000]}")
        measured = json.loads(done.stdout)
        after = server.cpu_seconds(), self._api_server_cpu_seconds()
        return AdmissionTurn(
            contender=contender,
            clients=clients,
            round=number,
            seconds=measured["seconds"],
            microseconds={
                int(latency): count for latency, count in measured["microseconds"].items()
            },
            server_cpu_seconds=after[0] - before[0],
            api_server_cpu_seconds=after[1] - before[1],
            failed_open=round(self._failed_open() - failed),
        )

    def _failed_open(self) -> float:
        """Return how often the API server gave up on a webhook and admitted the object."""
        metrics: str = api.call(self.cluster, "GET", "/metrics")
        counted = (
            line
            for line in metrics.splitlines()
            if line.startswith("apiserver_admission_webhook_fail_open_count")
        )
        return sum(float(line.rpartition(" ")[2]) for line in counted)

    def _api_server_cpu_seconds(self) -> float:
        running = self.cluster.processes.running("kube-apiserver")
        if running is None:
            raise ClusterError("the API server has ended")
        return servers.cpu_seconds(running.pid)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if something cannot be measured."""
    options = _parse(arguments)
    return command.run("bench-admission", lambda progress: _run(options, progress))


def _run(options: AdmissionOptions, progress: Progress) -> int:
    conditions = _conditions(options)
    turns, grown = _measure(options, progress)
    _report(turns, grown, options, conditions)
    return 0


def _measure(
    options: AdmissionOptions, progress: Progress
) -> tuple[list[AdmissionTurn], list[Growth]]:
    programs, address = build.ensure(pins.GROUPS["bench"], progress), servers.own_address()
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder, address)
        cluster = lifecycle.up(options.cluster, {"kwok_nodes": 1}, None, progress)
        stack.callback(lifecycle.down, options.cluster, keep_logs=False, progress=progress)
        kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
        overlays = [policies.rendered(kubectl, path) for path in (BASE, policies.CEL)]
        kubectl.apply(*soak.NEEDED)
        for documents in overlays:
            kubectl.apply(*policies.standing(documents))
        commands = (
            contenders.reprieve(cluster.kubeconfig, folder, address=address),
            contenders.controller_runtime(programs["bench-controller-runtime"], folder, address),
        )
        reprieve, peer = (
            stack.enter_context(
                servers.running(command, None, folder / f"{command.port}.log", trust)
            )
            for command in commands
        )
        authority = base64.b64encode((folder / bundle.CA_CERTIFICATES).read_bytes()).decode()
        webhooks, cel = (
            policies.switched(documents, reprieve, authority) for documents in overlays
        )
        bench = AdmissionBench(
            cluster, reprieve, peer, _create(programs["bench-create"], cluster, folder)
        )
        compared = _contenders(webhooks, cel, peer, authority)
        if options.copies > 1:
            compared = [
                Policy(policy.name, policies.copied(policy.objects, options.copies))
                for policy in compared
                if policy.name in _INSIDE
            ]
        turns = _rounds(bench, compared, options, progress)
        if options.copies > 1:
            return turns, []
        asked = soak.Load(
            programs["bench-load"], folder / bundle.CA_CERTIFICATES, soak.write_reviews(folder)
        )
        return turns, [
            soak.grow(asked, server, options.soak_reviews, progress) for server in (reprieve, peer)
        ]


def _contenders(
    webhooks: tuple[pods.Document, ...],
    cel: tuple[pods.Document, ...],
    peer: Server,
    authority: str,
) -> list[Policy]:
    reprieve = Policy(BOTH, webhooks)
    of_peer = [
        policies.of_controller_runtime(peer, authority, kind) for kind in (_VALIDATING, _MUTATING)
    ]
    return [
        Policy(NOTHING, ()),
        Policy(BY_HAND, policies.by_hand()),
        Policy(CEL, cel),
        Policy(VALIDATING, reprieve.only(_VALIDATING)),
        Policy(PEER_VALIDATING, (of_peer[0],)),
        reprieve,
        Policy(PEER_BOTH, tuple(of_peer)),
    ]


def _create(program: Path, cluster: Cluster, folder: Path) -> list[str]:
    (folder / "pods.jsonl").write_bytes(pods.lines())
    state.write_private(folder / "token", cluster.token(state.ADMIN))
    words = (
        "-url",
        cluster.api_server + pods.PATH,
        "-ca",
        cluster.ca_file,
        "-token-file",
        folder / "token",
    )
    return [str(program), *map(str, words), "-pods", str(folder / "pods.jsonl")]


def _rounds(
    bench: AdmissionBench, compared: Sequence[Policy], options: AdmissionOptions, progress: Progress
) -> list[AdmissionTurn]:
    turns, in_force = [], InForce(bench.cluster)
    for number in range(1, options.rounds + 1):
        first = (number - 1) % len(compared)
        with progress.task(f"round {number} of {options.rounds}") as task:
            for policy in (*compared[first:], *compared[:first]):
                in_force.switch(policy)
                bench.turn(policy.name, _WARM_UP_CLIENTS, number, _WARM_UP_SECONDS)
                turns += [
                    bench.turn(policy.name, clients, number, options.seconds)
                    for clients in options.clients
                ]
                in_force.check(policy)
                task.tick(policy.name)
    in_force.clear()
    return turns


def _report(
    turns: Sequence[AdmissionTurn],
    grown: Sequence[Growth],
    options: AdmissionOptions,
    conditions: dict[str, object],
) -> None:
    for clients, rows in added.summarise(turns, NOTHING).items():
        shown = [rows[name] for name in _order(rows)]
        print(f"\n{clients} client{'s' if clients > 1 else ''}\n{added.table(shown)}")
        for ours, theirs in _COMPARED:
            if ours in rows:
                print(_compare(rows[ours], rows[theirs]))
        by_hand = [added.ratio(turns, CEL, BY_HAND, clients, share) for share in (0.50, 0.99)]
        print(
            f"{CEL}: {by_hand[0]:.2f} × {BY_HAND} at p50, {by_hand[1]:.2f} × at p99 "
            "(of the whole creation)"
        )
        cpu = added.cpu_ratio(turns, CEL, BY_HAND, NOTHING, clients)
        print(f"{CEL} adds {cpu:.2f} × the processor time of the API server that {BY_HAND} adds")
    print()
    for each in grown:
        print(each)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    for doubt in added.doubts(turns):
        print(f"But {doubt}.")
    print(
        "Medians over the rounds; the addition is the difference to no policy in the same round, "
        "in ms."
    )
    if options.json_file is not None:
        written = added.document(
            turns, NOTHING, conditions=conditions, soak=[vars(each) for each in grown]
        )
        options.json_file.write_text(json.dumps(written, indent=1) + "\n")


def _order(rows: dict[str, added.AdmissionRow]) -> list[str]:
    order = (NOTHING, BY_HAND, CEL, VALIDATING, PEER_VALIDATING, BOTH, PEER_BOTH)
    return [name for name in order if name in rows]


def _compare(ours: added.AdmissionRow, theirs: added.AdmissionRow) -> str:
    p50 = ours.added_p50_ms / theirs.added_p50_ms
    p99 = ours.added_p99_ms / theirs.added_p99_ms
    return (
        f"{ours.contender} adds {p50:.2f} × at p50 and {p99:.2f} × at p99 of the addition of "
        f"{theirs.contender}"
    )


def _conditions(options: AdmissionOptions) -> dict[str, object]:
    return {
        **servers.read_machine(),
        "kube-apiserver": pins.version(pins.BINARIES["kube-apiserver"]),
        "webhooks at": servers.own_address(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "copies": options.copies,
    }


def _parse(arguments: Sequence[str] | None) -> AdmissionOptions:
    parser = argparse.ArgumentParser(
        "bench-admission", description="Measure what a policy adds to creating a pod."
    )
    parser.add_argument(
        "--rounds", type=int, default=4, help="turns of each contender (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.5,
        help="of each number of clients (default: %(default)s)",
    )
    parser.add_argument(
        "--copies",
        type=int,
        default=1,
        metavar="N",
        help="of each policy that the API server evaluates: only these are compared, and what they "
        "add is N times as large, so that it exceeds the noise (default: %(default)s)",
    )
    parser.add_argument(
        "--clients",
        type=_numbers,
        default=(1, 16, 200),
        metavar="N,N",
        help="at once (default: 1,16,200)",
    )
    parser.add_argument(
        "--soak-reviews",
        type=int,
        default=soak.QUARTER_OF_AN_HOUR,
        metavar="N",
        help="sent to each server directly, to see its memory grow; "
        f"{4 * soak.QUARTER_OF_AN_HOUR} are an hour at 100/s (default: %(default)s)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also write everything as JSON"
    )
    parser.add_argument(
        "--cluster",
        default="bench-admission",
        metavar="NAME",
        help="of the cluster that is made for it and removed (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    return AdmissionOptions(
        options.rounds,
        options.seconds,
        options.copies,
        options.clients,
        options.soak_reviews,
        options.output,
        options.cluster,
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
