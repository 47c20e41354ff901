"""The checkpoint annotations as a plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import (
    AnnotationHint,
    CheckpointPlan,
    FileHint,
    GrpcHint,
    Hint,
    HttpHint,
    Requeue,
    SignalHint,
    SigtermHint,
    Strategy,
)
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.verdict import Violation, ViolationKind

DEFAULTS = PolicySettings()
HINT = {keys.CHECKPOINT_HINT: "http://:8080/checkpoint"}


def plan_of(annotations: dict[str, str], settings: PolicySettings = DEFAULTS) -> CheckpointPlan:
    plan = checkpoint_plan.parse(annotations, settings)
    assert isinstance(plan, CheckpointPlan)
    return plan


STRATEGIES = {
    "a pod without annotations gets no notice": ({}, Strategy.NONE),
    "a hint alone means auto": (HINT, Strategy.AUTO),
    "auto without a hint is notified by annotation": ({keys.CHECKPOINT: "auto"}, Strategy.AUTO),
    "manual is notified": ({keys.CHECKPOINT: "manual"}, Strategy.MANUAL),
    "strategy none overrides a hint": ({**HINT, keys.CHECKPOINT: "none"}, Strategy.NONE),
}


@pytest.mark.parametrize(("annotations", "strategy"), STRATEGIES.values(), ids=STRATEGIES)
def test_which_strategies_are_read(annotations: dict[str, str], strategy: Strategy) -> None:
    plan = plan_of(annotations)
    assert plan.strategy is strategy
    assert plan.gives_notice is (strategy is not Strategy.NONE)


def test_a_plan_has_the_specifications_defaults() -> None:
    assert plan_of({keys.CHECKPOINT: "auto"}) == CheckpointPlan(
        strategy=Strategy.AUTO,
        hint=AnnotationHint(),
        timeout_seconds=600,
        max_deferral_seconds=300,
        estimated_seconds=None,
        requeue=Requeue.AUTO,
    )


def test_every_annotation_is_read() -> None:
    annotations = {
        keys.CHECKPOINT: "manual",
        keys.CHECKPOINT_HINT: "http://:9000/save?kind=full",
        keys.CHECKPOINT_TIMEOUT: "5m",
        keys.MAX_DEFERRAL: "1m",
        keys.ESTIMATED_CHECKPOINT_TIME: "90s",
        keys.REQUEUE: "never",
        keys.REQUEUE_ENV: "true",
        keys.CLEANERS_BEFORE: "example.com/disk, licences.example.com/a.B_c",
    }
    assert plan_of(annotations) == CheckpointPlan(
        strategy=Strategy.MANUAL,
        hint=HttpHint(9000, "/save?kind=full"),
        timeout_seconds=300,
        max_deferral_seconds=60,
        estimated_seconds=90,
        requeue=Requeue.NEVER,
        sets_environment=True,
        cleaners_before=("example.com/disk", "licences.example.com/a.B_c"),
    )


def test_a_cleaner_is_named_once_and_reprieve_is_none_before_sigterm() -> None:
    named = f"example.com/a,{keys.CLEANUP_FINALIZER},example.com/b,example.com/a"
    plan = plan_of({keys.CLEANERS_BEFORE: named})
    assert plan.cleaners_before == ("example.com/a", "example.com/b")


@pytest.mark.parametrize(
    "named",
    ["", "release", "example.com/", "/x", "example.com/a,", "example.com/a example.com/b", "A.b/c"],
)
def test_what_is_no_list_of_finalizers_is_refused(named: str) -> None:
    violations = checkpoint_plan.parse({keys.CLEANERS_BEFORE: named}, DEFAULTS)
    assert isinstance(violations, tuple)
    assert [violation.path for violation in violations] == [
        f"metadata.annotations[{keys.CLEANERS_BEFORE}]"
    ]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("example.com/a", True),
        ("example.com/a,example.com/b", False),
        (keys.CLEANUP_FINALIZER, False),
    ],
)
def test_a_cleaner_has_one_finalizer_of_its_own(text: str, *, is_one: bool) -> None:
    assert checkpoint_plan.is_finalizer(text) is is_one


def test_the_default_timeout_stays_below_the_ceiling() -> None:
    assert plan_of(HINT, PolicySettings(ceiling_seconds=60)).timeout_seconds == 60


HINTS = {
    "a port and a path": ("http://:8080/checkpoint", HttpHint(8080, "/checkpoint")),
    "the highest port": ("http://:65535/", HttpHint(65535, "/")),
    "a port for gRPC": ("grpc://:9000", GrpcHint(9000)),
    "a signal to a container": ("signal://USR1?container=main", SignalHint("USR1", "main")),
    "a file": ("file:///dev/shm/hint", FileHint("/dev/shm/hint")),
    "a hidden file": ("file:///data/.hint", FileHint("/data/.hint")),
    "a file whose name begins with two points": ("file:///data/..hint", FileHint("/data/..hint")),
    "the annotation": ("annotation:", AnnotationHint()),
    "SIGTERM": ("sigterm:", SigtermHint()),
}

FOREIGN_HINTS = {
    "another host": "http://169.254.169.254:80/latest",
    "a name": "http://metadata:80/",
    "credentials": "http://user@:8080/",
    "another scheme": "https://:8080/",
    "no path": "http://:8080",
    "no port": "http://:/path",
    "the port zero": "http://:0/",
    "a port with a leading zero": "http://:08080/",
    "a port above all": "http://:65536/",
    "a fragment": "http://:8080/#x",
    "a space": "http://:8080/a b",
    "a line end": "http://:8080/a\r\nHost: other",
    "another script": "http://:8080/保存",
    "more than 512 characters": "http://:8080/" + "x" * 512,
    "a gRPC host": "grpc://other:9000",
    "a gRPC path": "grpc://:9000/x",
    "a gRPC port above all": "grpc://:65536",
    "a signal without a container": "signal://USR1",
    "a signal to no container": "signal://USR1?container=",
    "a signal to something else": "signal://USR1?pod=main",
    "a signal to a name that no container has": "signal://USR1?container=Main",
    "the signal that ends the pod": "signal://TERM?container=main",
    "a signal by its full name": "signal://SIGUSR1?container=main",
    "a signal by its number": "signal://10?container=main",
    "a file of another host": "file://host/dev/shm/x",
    "a file above its folder": "file:///data/../etc/passwd",
    "a file's folder itself": "file:///data/.",
    "a folder": "file:///data/",
    "the root folder": "file:///",
    "a file by a doubled slash": "file:///data//x",
    "a file with a query": "file:///data/x?y",
    "a file in another script": "file:///data/保存",
    "a file of more than 512 characters": "file:///" + "x" * 512,
    "SIGTERM with a container": "sigterm://main",
    "SIGTERM with a time": "sigterm:10m",
    "nothing": "",
}


@pytest.mark.parametrize(("text", "want"), HINTS.values(), ids=HINTS)
def test_hints_are_sent_to_the_pod_itself(text: str, want: Hint) -> None:
    assert checkpoint_plan.parse_hint(text, "path") == want


@pytest.mark.parametrize("text", FOREIGN_HINTS.values(), ids=FOREIGN_HINTS)
def test_hints_to_other_addresses_are_refused(text: str) -> None:
    found = checkpoint_plan.parse_hint(text, "path")
    detail = (
        'supported values: "http://:PORT/PATH", "grpc://:PORT", "signal://USR1?container=NAME", '
        '"file:///PATH", "annotation:", "sigterm:"'
    )
    assert found == Violation("path", ViolationKind.UNSUPPORTED, text, detail)


def test_only_a_workload_with_that_hint_saves_on_sigterm() -> None:
    assert plan_of({keys.CHECKPOINT_HINT: "sigterm:"}).saves_on_sigterm
    assert not plan_of({keys.CHECKPOINT_HINT: "annotation:"}).saves_on_sigterm
    assert not plan_of({keys.CHECKPOINT_HINT: "sigterm:", keys.CHECKPOINT: "none"}).saves_on_sigterm


SAVE_TIMES = {
    "the timeout, where nothing is estimated": ({keys.CHECKPOINT_TIMEOUT: "3m"}, 180),
    "the estimate": ({keys.ESTIMATED_CHECKPOINT_TIME: "90s"}, 90),
    "an estimate within the timeout": (
        {keys.CHECKPOINT_TIMEOUT: "3m", keys.ESTIMATED_CHECKPOINT_TIME: "1h"},
        180,
    ),
}


@pytest.mark.parametrize(("annotations", "want"), SAVE_TIMES.values(), ids=SAVE_TIMES)
def test_a_save_takes(annotations: dict[str, str], want: int) -> None:
    assert plan_of(annotations).save_seconds == want


SET = "the limit set for this cluster"


def test_no_workload_gets_more_time_than_the_admin_allows() -> None:
    found = checkpoint_plan.parse(
        {keys.CHECKPOINT_TIMEOUT: "31m", keys.MAX_DEFERRAL: "301s"}, DEFAULTS, "spec.template."
    )
    assert isinstance(found, tuple)
    prefix = "spec.template.metadata.annotations"
    assert [str(violation).removeprefix(prefix) for violation in found] == [
        '[reprieve.dev/checkpoint-timeout]: Invalid value: "31m": must be at most 30m, ' + SET,
        '[reprieve.dev/max-deferral]: Invalid value: "301s": must be at most 5m, ' + SET,
    ]


def test_the_limits_themselves_are_allowed() -> None:
    plan = plan_of({keys.CHECKPOINT_TIMEOUT: "30m", keys.MAX_DEFERRAL: "5m"})
    assert (plan.timeout_seconds, plan.max_deferral_seconds) == (1800, 300)


def test_all_violations_are_returned_at_once() -> None:
    annotations = {
        keys.CHECKPOINT: "maybe",
        keys.CHECKPOINT_HINT: "tcp://",
        keys.CHECKPOINT_TIMEOUT: "10",
        keys.MAX_DEFERRAL: "1h",
        keys.ESTIMATED_CHECKPOINT_TIME: "soon",
        keys.REQUEUE: "later",
        keys.REQUEUE_ENV: "yes",
    }
    found = checkpoint_plan.parse(annotations, DEFAULTS)
    assert isinstance(found, tuple)
    assert {violation.path for violation in found} == {
        f"metadata.annotations[{key}]" for key in annotations
    }
    assert str(found[0]) == (
        "metadata.annotations[reprieve.dev/checkpoint]: "
        'Unsupported value: "maybe": supported values: "auto", "manual", "none"'
    )


LENIENT = {
    "an unreadable timeout gives way to the default": (
        {**HINT, keys.CHECKPOINT_TIMEOUT: "10"},
        600,
    ),
    "a timeout above the ceiling gives way to the default": (
        {**HINT, keys.CHECKPOINT_TIMEOUT: "10h"},
        600,
    ),
    "a readable timeout beside an unreadable requeue": (
        {**HINT, keys.CHECKPOINT_TIMEOUT: "5m", keys.REQUEUE: "later"},
        300,
    ),
}


@pytest.mark.parametrize(("annotations", "timeout_seconds"), LENIENT.values(), ids=LENIENT)
def test_a_plan_that_no_webhook_checked_is_read_leniently(
    annotations: dict[str, str], timeout_seconds: int
) -> None:
    plan = checkpoint_plan.read_leniently(annotations, DEFAULTS)
    assert plan.timeout_seconds == timeout_seconds
    assert plan.hint == HttpHint(8080, "/checkpoint")


PLAN_KEYS = st.sampled_from(
    [
        keys.CHECKPOINT,
        keys.CHECKPOINT_HINT,
        keys.CHECKPOINT_TIMEOUT,
        keys.MAX_DEFERRAL,
        keys.ESTIMATED_CHECKPOINT_TIME,
        keys.REQUEUE,
        keys.REQUEUE_ENV,
    ]
)
PLAN_TEXTS = st.sampled_from(["none", "auto", "5m", "999999h", "never"]) | st.text(
    st.characters(exclude_categories=()), max_size=5
)


@given(st.dictionaries(PLAN_KEYS, PLAN_TEXTS))
def test_any_annotations_make_a_plan_within_the_admins_limits(annotations: dict[str, str]) -> None:
    plan = checkpoint_plan.read_leniently(annotations, DEFAULTS)
    assert 1 <= plan.timeout_seconds <= DEFAULTS.ceiling_seconds
    assert 1 <= plan.max_deferral_seconds <= DEFAULTS.max_deferral_seconds
