"""Which rights a run used: read from an audit log, and compared with the roles."""

import json
from pathlib import Path
from typing import Any

import pytest

from realcluster.control_plane import components
from reprieve_testing.rights import comparison
from reprieve_testing.rights.comparison import Difference, compare, granted_rights
from reprieve_testing.rights.usage import (
    Refusal,
    Right,
    Usage,
    audit_files,
    read,
    read_folder,
    right_of,
)

OPERATOR, WEBHOOKS = "reprieve-operator", "reprieve-webhooks"


def an_entry(**changes: Any) -> dict[str, Any]:
    return {
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": f"system:serviceaccount:reprieve-system:{OPERATOR}"},
        "userAgent": OPERATOR,
        "requestURI": "/api/v1/namespaces/team/pods/a/status",
        "objectRef": {"resource": "pods", "subresource": "status", "namespace": "team"},
        "annotations": {"authorization.k8s.io/decision": "allow"},
    } | changes


JOB = {"resource": "jobs", "apiGroup": "batch"}
RIGHTS = {
    "a subresource": (an_entry(), Right(OPERATOR, "patch", "pods/status")),
    "another group": (an_entry(objectRef=JOB), Right(OPERATOR, "patch", "jobs.batch")),
    "a watch that goes on": (
        an_entry(objectRef=JOB, verb="watch", stage="ResponseStarted"),
        Right(OPERATOR, "watch", "jobs.batch"),
    ),
    "another user": (an_entry(user={"username": "admin"}), None),
    "another account": (
        an_entry(user={"username": "system:serviceaccount:reprieve-system:default"}),
        None,
    ),
    "a test with the program's token": (an_entry(userAgent="kubectl/v1.37.0"), None),
    "no answer yet": (an_entry(stage="RequestReceived"), None),
    "no resource": (an_entry(objectRef=None), None),
    "an admin in the program's name": (an_entry(impersonatedUser={"username": OPERATOR}), None),
}


@pytest.mark.parametrize(("entry", "right"), RIGHTS.values(), ids=RIGHTS)
def test_a_request_of_a_program_needs_a_right(entry: dict[str, Any], right: Right | None) -> None:
    assert right_of(entry) == right


def written(folder: Path, name: str, *entries: dict[str, Any]) -> Path:
    file = folder / name
    file.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return file


def test_refused_requests_are_told_with_an_example_and_do_not_count_as_used(tmp_path: Path) -> None:
    refused = an_entry(annotations={"authorization.k8s.io/decision": "forbid"})
    log = written(tmp_path, "audit.log", refused, an_entry(objectRef=JOB))
    usage = read([log])
    assert usage.used == {Right(OPERATOR, "patch", "jobs.batch")}
    status = Right(OPERATOR, "patch", "pods/status")
    assert usage.refused == {Refusal(status, "team", ""): refused["requestURI"]}


def test_a_full_log_was_renamed_and_the_last_line_may_be_half(tmp_path: Path) -> None:
    written(tmp_path, "audit-2026-11-21T12-00-00.000.log", an_entry(objectRef=JOB))
    log = written(tmp_path, "audit.log", an_entry())
    with log.open("a") as file:
        file.write(json.dumps(an_entry(verb="delete"))[:-20])
    assert {right.verb for right in read(audit_files(log)).used} == {"patch"}
    assert len(read(audit_files(log)).used) == 2


def test_all_clusters_of_a_run_are_added_up(tmp_path: Path) -> None:
    first, second, third = (Right(OPERATOR, verb, "pods") for verb in ("get", "list", "watch"))
    refusal = Refusal(third, "team", "a")
    (tmp_path / "a.json").write_text(Usage({first}, {refusal: "/a"}).render())
    (tmp_path / "b.json").write_text(Usage({second}, {refusal: "/b"}).render())
    assert read_folder(tmp_path) == Usage({first, second}, {refusal: "/a"})


def test_a_run_that_uses_every_right_and_misses_none_shows_no_difference() -> None:
    assert not compare(Usage(granted_rights(), {}))


def test_each_difference_is_a_line_of_the_table() -> None:
    other_secret = Refusal(Right(WEBHOOKS, "get", "secrets"), "reprieve-system", "other")
    usage = Usage(granted_rights(), {other_secret: "/x"})
    usage.used -= {Right(OPERATOR, "list", "nodes")}
    usage.used |= {Right(WEBHOOKS, "delete", "pods")}
    difference = compare(usage)
    assert difference
    assert difference.render().splitlines() == [
        "never used         reprieve-operator  list    nodes",
        "refused            reprieve-webhooks  get     secrets  /x",
        "used, not granted  reprieve-webhooks  delete  pods",
    ]
    assert Difference((), {}, ()).render() == ""


def test_a_granted_right_that_was_refused_is_no_difference() -> None:
    """A test takes some away, and an API server that was just started has not read them."""
    pods = Right(OPERATOR, "patch", "pods/status")
    secrets = Right(WEBHOOKS, "get", "secrets")
    certificate = "reprieve-webhook-certs"
    refused = {
        Refusal(pods, "team", "a"): "/pods",
        Refusal(secrets, "reprieve-system", certificate): "/own",
        Refusal(secrets, "team", certificate): "/elsewhere",
    }
    found = compare(Usage(granted_rights(), refused))
    assert found.refused == {secrets: "/elsewhere"}


def test_rights_that_no_log_shows_are_granted_and_every_account_may_review_itself() -> None:
    assert set(comparison.UNSEEN) <= granted_rights()
    assert not compare(Usage(granted_rights() | comparison.FOR_EVERY_ACCOUNT, {}))


def test_reads_are_audited_only_where_a_run_collects_rights_and_for_every_granted_group() -> None:
    without, with_rights = (
        components.audit_policy(with_rights=which)["rules"] for which in (False, True)
    )
    assert isinstance(without, list)
    assert isinstance(with_rights, list)
    (added,) = [rule for rule in with_rights if rule not in without]
    assert (without[-1], with_rights[-1]) == ({"level": "None"}, {"level": "None"})
    granted = {right.resource.partition("/")[0].partition(".")[2] for right in granted_rights()}
    audited = {row["group"] for row in added["resources"]}
    assert granted - {"reprieve.dev"} <= audited
