"""What is answered to a review: every refusal at once, ratcheted, as strictly as the Namespace asks
for.
"""

import sys
from dataclasses import dataclass, field, replace
from http import HTTPStatus

import pytest

from reprieve_policy import keys
from reprieve_policy.admission import review
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.admission.rules import RULES
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.kinds import TEMPLATE_KINDS
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import Verdict
from reprieve_testing.objects.builders import (
    a_namespace,
    a_pod,
    a_policy_map,
    a_priority_class,
    being_deleted,
)

CLASS = "metadata.labels[reprieve.dev/preemption-class]"
PREEMPTIBLE = "metadata.labels[quota.scheduling.koordinator.sh/preemptible]"
CAN_PREEMPT = "metadata.labels[quota.scheduling.koordinator.sh/can-preempt]"
CHECKPOINT = "metadata.annotations[reprieve.dev/checkpoint]"
HINT = "metadata.annotations[reprieve.dev/checkpoint-hint]"
DEFAULT_CLASS = "metadata.annotations[reprieve.dev/default-preemption-class]"
ALLOWED = "metadata.annotations[reprieve.dev/allowed-preemption-classes]"
DEFENCE = "metadata.annotations[reprieve.dev/preemption-priority-class]"
MARK = "metadata.annotations[scheduling.koordinator.sh/soft-eviction]"
MINIMUM = (
    "metadata.annotations[preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority]"
)
TOLERATION_SECONDS = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
SECONDS = f"metadata.annotations[{TOLERATION_SECONDS}]"
OLD_SECONDS = (
    "metadata.annotations[preemption-toleration.scheduling.sigs.k8s.io/toleration-seconds]"
)

BAD_CLASS = f'{CLASS}: Invalid value: "11": must be between 0 and 10, in plain digits'
BAD_SECONDS = (
    f'{SECONDS}: Invalid value: "1h": must be whole seconds, like "3600"; "-1" tolerates forever'
)
OLD_TOLERATION_SECONDS = keys.OLD_TOLERATION_PREFIX + keys.TOLERATION_SECONDS
OLD_MINIMUM = keys.OLD_TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY
AN_INT32 = "must be a whole number between -2147483648 and 2147483647"
ON_A_PRIORITY_CLASS = "unread; set it on a PriorityClass"
LOWERED_ONLY = f"{CLASS}: Forbidden: may only be lowered after creation"
STAYS_PREEMPTIBLE = f"{PREEMPTIBLE}: Forbidden: a preemptible pod stays preemptible after creation"
KOORDINATOR_MARK = "metadata.labels[scheduling.koordinator.sh/soft-eviction]"
IN_TEMPLATE = "Forbidden: a mark in a template would evict every pod that it makes"
HINTS = (
    '"http://:PORT/PATH", "grpc://:PORT", "signal://USR1?container=NAME", '
    '"file:///PATH", "annotation:", "sigterm:"'
)
NINE_THOUSAND = "must be 9000 or higher"
NEVER_BELOW = "only a higher priority preempts it"
REMOVE_THIS_ONE = "remove this one, schedulers read only the other"
CLASSES_LIKE = 'like "0-6" or "0-2,5"'

ALL_CLASSES = ClassSet(frozenset(range(11)))
ANY_CLASS = Facts(namespace=NamespacePolicy(allowed_classes=ALL_CLASSES))
SENSITIVE = Facts(
    namespace=NamespacePolicy(workload_type="sensitive", allowed_classes=ClassSet(frozenset({10})))
)
NOT_PREEMPTIBLE_BY_DEFAULT = Facts(settings=PolicySettings(default_preemptible=False))


def knowing(*priority_classes: Resource, lift: int = 0) -> Facts:
    known = {found.metadata.name or "": found for found in priority_classes}
    return Facts(settings=PolicySettings(max_preemption_priority_lift=lift), priority_classes=known)


LOW, HIGH = a_priority_class("low").worth(100).build(), a_priority_class("high").worth(9000).build()
DEFENDED = a_priority_class("defended").worth(100).defended_as("high").build()
MEEK = a_priority_class("meek").never_preempting().build()
LOW_FOR_ALL = a_priority_class("low").worth(100).for_all().build()


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object, what it was before, what is known of the cluster; what is refused and what is
    warned of.
    """

    resource: Resource
    old: Resource | None = None
    facts: Facts = field(default_factory=Facts)
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


PODS = {
    "a pod without preemption keys is admitted": Case(resource=a_pod().build()),
    "a pod of class 6 is admitted": Case(resource=a_pod().in_class(6).build()),
    "a pod of class 11 is refused": Case(
        resource=a_pod().in_class(11).build(), refused=(BAD_CLASS,)
    ),
    "a pod of class 7 is refused unless the Namespace allows it": Case(
        resource=a_pod().in_class(7).with_hint().build(),
        refused=(f'{CLASS}: Unsupported value: "7": classes allowed in this namespace: 0-6',),
    ),
    "a pod of class 7 with a checkpoint is admitted where it is allowed": Case(
        resource=a_pod().in_class(7).with_hint().build(), facts=ANY_CLASS
    ),
    "a pod of class 7 without a checkpoint gets a warning: non-preemptible": Case(
        resource=a_pod().in_class(7).build(),
        facts=ANY_CLASS,
        warned=(f"{CLASS}: class 7 without a checkpoint is non-preemptible",),
    ),
    "a pod of class 10 in a Namespace without a list of classes is left to the guard": Case(
        resource=a_pod().in_class(10).build()
    ),
    "a pod of class 10 is refused where the list lacks it": Case(
        resource=a_pod().in_class(10).build(),
        facts=Facts(namespace=NamespacePolicy(allowed_classes=ClassSet(frozenset({0, 1, 2, 5})))),
        refused=(f'{CLASS}: Unsupported value: "10": classes allowed in this namespace: 0-2,5',),
    ),
    "offline, a pod of class 10 gets a warning about the permission": Case(
        resource=a_pod().in_class(10).build(),
        facts=Facts(is_offline=True),
        warned=(f"{CLASS}: class 10 needs the right to claim it",),
    ),
    "offline, a pod of another class gets no warning": Case(
        resource=a_pod().in_class(6).build(), facts=Facts(is_offline=True)
    ),
    "a pod of class 10 needs no right where workloads are sensitive": Case(
        resource=a_pod().in_class(10).build(), facts=replace(SENSITIVE, is_offline=True)
    ),
    "a class that is not allowed is refused even if it falls": Case(
        resource=a_pod().in_class(8).with_hint().build(),
        old=a_pod().in_class(9).with_hint().build(),
        refused=(f'{CLASS}: Unsupported value: "8": classes allowed in this namespace: 0-6',),
    ),
    "an existing class that is not allowed does not block an update": Case(
        resource=a_pod().in_class(8).with_hint().annotated("colour", "red").build(),
        old=a_pod().in_class(8).with_hint().build(),
    ),
    "with the facts, a pod of class 10 gets no warning": Case(
        resource=a_pod().in_class(10).build(), facts=ANY_CLASS
    ),
    "a pod of class 5 is refused where workloads are sensitive": Case(
        resource=a_pod().in_class(5).build(),
        facts=SENSITIVE,
        refused=(f'{CLASS}: Unsupported value: "5": classes allowed in this namespace: 10',),
    ),
    "a pod without preemption keys is admitted where workloads are sensitive": Case(
        resource=a_pod().build(), facts=SENSITIVE
    ),
    "a class that falls is admitted": Case(
        resource=a_pod().in_class(3).build(), old=a_pod().in_class(5).build()
    ),
    "a class that rises is forbidden": Case(
        resource=a_pod().in_class(5).build(),
        old=a_pod().in_class(3).build(),
        refused=(LOWERED_ONLY,),
    ),
    "a class that is taken away does not make it the higher default": Case(
        resource=a_pod().build(), old=a_pod().in_class(3).build(), refused=(LOWERED_ONLY,)
    ),
    "a class that is given to a pod of the default does not rise above it": Case(
        resource=a_pod().in_class(5).build(), old=a_pod().build(), refused=(LOWERED_ONLY,)
    ),
    "a class that replaces an unreadable one does not rise above the default": Case(
        resource=a_pod().in_class(5).build(),
        old=a_pod().in_class("high").build(),
        refused=(LOWERED_ONLY,),
    ),
    "a preemptible label that Koordinator would not read is refused": Case(
        resource=a_pod().labelled(keys.PREEMPTIBLE, "no").build(),
        refused=(f'{PREEMPTIBLE}: Unsupported value: "no": supported values: "true", "false"',),
    ),
    "a pod that becomes preemptible is admitted": Case(
        resource=a_pod().labelled(keys.PREEMPTIBLE, "true").build(),
        old=a_pod().labelled(keys.PREEMPTIBLE, "false").build(),
    ),
    "a pod that stops being preemptible is forbidden": Case(
        resource=a_pod().labelled(keys.PREEMPTIBLE, "false").build(),
        old=a_pod().build(),
        refused=(STAYS_PREEMPTIBLE,),
    ),
    "a pod that stops being preemptible by losing its label is forbidden": Case(
        resource=a_pod().build(),
        old=a_pod().labelled(keys.PREEMPTIBLE, "true").build(),
        facts=NOT_PREEMPTIBLE_BY_DEFAULT,
        refused=(STAYS_PREEMPTIBLE,),
    ),
    "a pod that claims to preempt and never does is warned": Case(
        resource=a_pod().labelled(keys.CAN_PREEMPT, "true").preempting("Never").build(),
        warned=(f"{CAN_PREEMPT}: preemptionPolicy is Never",),
    ),
    "a pod that may preempt is not": Case(
        resource=a_pod()
        .labelled(keys.CAN_PREEMPT, "true")
        .preempting("PreemptLowerPriority")
        .build()
    ),
    "a toleration on a pod is warned of, once for both prefixes": Case(
        resource=a_pod()
        .annotated(TOLERATION_SECONDS, "60")
        .annotated(OLD_TOLERATION_SECONDS, "60")
        .build(),
        warned=(f"metadata.annotations[*/toleration-seconds]: {ON_A_PRIORITY_CLASS}",),
    ),
    "an unknown strategy is refused": Case(
        resource=a_pod().with_checkpoint("maybe").build(),
        refused=(
            f'{CHECKPOINT}: Unsupported value: "maybe": supported values: "auto", "manual", "none"',
        ),
    ),
    "a hint that none makes useless is warned of": Case(
        resource=a_pod().with_checkpoint("none").with_hint().build(),
        warned=(f'{HINT}: has no effect with checkpoint "none"',),
    ),
    "a mark is admitted": Case(resource=a_pod().marked().marked_by("descheduler").build()),
    "an unreadable mark is refused": Case(
        resource=a_pod().annotated(keys.KOORDINATOR_SOFT_EVICTION, '{"initiator":7}').build(),
        refused=(f'{MARK}.initiator: Invalid value: "7": must be a string',),
    ),
    "an empty mark does not count": Case(
        resource=a_pod().annotated(keys.KOORDINATOR_SOFT_EVICTION, "").build()
    ),
    "a pod defended with its own PriorityClass is admitted": Case(
        resource=a_pod().with_priority(9000, "high").defended_as("high").build(),
        facts=knowing(HIGH),
    ),
    "a pod defended lower than it is scheduled is refused": Case(
        resource=a_pod().with_priority(9000, "high").defended_as("low").build(),
        facts=knowing(LOW, HIGH),
        refused=(
            (
                f'{DEFENCE}: Invalid value: "low": its value 100 is below the priority '
                f"9000: {NINE_THOUSAND}"
            ),
        ),
    ),
    "a pod defended higher than it is scheduled is forbidden": Case(
        resource=a_pod().with_priority(100, "low").defended_as("high").build(),
        facts=knowing(LOW, HIGH),
        refused=(f"{DEFENCE}: Forbidden: its value 9000 is above 100, the highest allowed here",),
    ),
    "a higher preemption priority is admitted if the admin allows it": Case(
        resource=a_pod().with_priority(100, "low").defended_as("high").build(),
        facts=knowing(LOW, HIGH, lift=8900),
    ),
    "a preemption priority from the PriorityClass is admitted": Case(
        resource=a_pod().with_priority(100, "defended").defended_as("high").build(),
        facts=knowing(DEFENDED, HIGH),
    ),
    "a pod defended with an unknown PriorityClass is refused": Case(
        resource=a_pod().defended_as("gold").build(), refused=(f'{DEFENCE}: Not found: "gold"',)
    ),
    "a defence that changes is forbidden": Case(
        resource=a_pod().with_priority(100, "low").defended_as("low").build(),
        old=a_pod().with_priority(100, "low").build(),
        facts=knowing(LOW),
        refused=(f"{DEFENCE}: Forbidden: may not be changed after creation",),
    ),
    "a defence that is taken away is forbidden": Case(
        resource=a_pod().with_priority(100, "low").build(),
        old=a_pod().with_priority(100, "low").defended_as("low").build(),
        facts=knowing(LOW),
        refused=(f"{DEFENCE}: Forbidden: may not be changed after creation",),
    ),
    "three mistakes are refused at once, in the order of the fields": Case(
        resource=a_pod()
        .in_class(11)
        .labelled(keys.PREEMPTIBLE, "no")
        .with_checkpoint("maybe")
        .build(),
        refused=(
            BAD_CLASS,
            f'{PREEMPTIBLE}: Unsupported value: "no": supported values: "true", "false"',
            f'{CHECKPOINT}: Unsupported value: "maybe": supported values: "auto", "manual", "none"',
        ),
    ),
}

TEMPLATES = {
    "a Deployment whose pods would be of class 11 is refused": Case(
        resource=a_pod().in_class(11).in_template_of("Deployment"),
        refused=(f"spec.template.{BAD_CLASS}",),
    ),
    "a Job whose pods have three violations is refused with all three": Case(
        resource=a_pod()
        .in_class(11)
        .with_checkpoint("maybe")
        .with_hint("tcp://")
        .in_template_of("Job"),
        refused=(
            f"spec.template.{BAD_CLASS}",
            (
                f'spec.template.{CHECKPOINT}: Unsupported value: "maybe": supported '
                f'values: "auto", "manual", "none"'
            ),
            f'spec.template.{HINT}: Unsupported value: "tcp://": supported values: {HINTS}',
        ),
    ),
    "a template may rise: its pods are new": Case(
        resource=a_pod()
        .in_class(5)
        .labelled(keys.PREEMPTIBLE, "false")
        .in_template_of("Deployment"),
        old=a_pod().in_class(3).in_template_of("Deployment"),
    ),
    "a template that claims to preempt, and whose PriorityClass never does, is warned": Case(
        resource=a_pod()
        .labelled(keys.CAN_PREEMPT, "true")
        .in_priority_class("meek")
        .in_template_of("Job"),
        facts=knowing(MEEK),
        warned=(f"spec.template.{CAN_PREEMPT}: preemptionPolicy is Never",),
    ),
    "a toleration in a template is warned of, each half": Case(
        resource=a_pod()
        .annotated(TOLERATION_SECONDS, "60")
        .annotated(OLD_MINIMUM, "7")
        .in_template_of("CronJob"),
        warned=tuple(
            f"spec.jobTemplate.spec.template.metadata.annotations[*/{name}]: {ON_A_PRIORITY_CLASS}"
            for name in ("minimum-preemptable-priority", "toleration-seconds")
        ),
    ),
    "a template may change its defence": Case(
        resource=a_pod().in_priority_class("low").defended_as("low").in_template_of("Deployment"),
        old=a_pod().in_priority_class("low").in_template_of("Deployment"),
        facts=knowing(LOW),
    ),
    "a mark in a template is forbidden wherever it stands": Case(
        resource=a_pod()
        .marked()
        .labelled(keys.KOORDINATOR_SOFT_EVICTION, "true")
        .marked_by("somebody")
        .in_template_of("Job"),
        refused=(
            f"spec.template.metadata.labels[reprieve.dev/soft-eviction]: {IN_TEMPLATE}",
            f"spec.template.{KOORDINATOR_MARK}: {IN_TEMPLATE}",
            f"spec.template.{MARK}: {IN_TEMPLATE}",
        ),
    ),
    "a template defended with an unknown PriorityClass gets a warning": Case(
        resource=a_pod().defended_as("gold").in_template_of("Job"),
        warned=(f"spec.template.{DEFENCE}: no such PriorityClass yet",),
    ),
    "a template has the priority that its PriorityClass will give": Case(
        resource=a_pod().in_priority_class("high").defended_as("low").in_template_of("Job"),
        facts=knowing(LOW, HIGH),
        refused=(
            (
                f'spec.template.{DEFENCE}: Invalid value: "low": its value 100 is below '
                f"the priority 9000: {NINE_THOUSAND}"
            ),
        ),
    ),
    "a template without a PriorityClass has that of the global default": Case(
        resource=a_pod().defended_as("low").in_template_of("Job"), facts=knowing(LOW_FOR_ALL)
    ),
    "a template without any has priority 0": Case(
        resource=a_pod().defended_as("low").in_template_of("Job"),
        facts=knowing(LOW),
        refused=(
            (
                f"spec.template.{DEFENCE}: Forbidden: its value 100 is above 0, the "
                f"highest allowed here"
            ),
        ),
    ),
    "a Deployment without a template is the API server's to refuse": Case(
        resource=Resource(kind="Deployment")
    ),
}

PRIORITY_CLASSES = {
    "a PriorityClass without annotations is admitted": Case(resource=a_priority_class().build()),
    "a readable toleration is admitted": Case(
        resource=a_priority_class().tolerating(seconds="3600", below="10000").build()
    ),
    "a duration instead of seconds is refused": Case(
        resource=a_priority_class().tolerating(seconds="1h").build(),
        refused=(BAD_SECONDS,),
    ),
    "a minimum below the class's own value is refused": Case(
        resource=a_priority_class().worth(1000).tolerating(seconds="60", below="999").build(),
        refused=(
            (
                f'{MINIMUM}: Invalid value: "999": must not be below the class\'s own '
                f"value 1000: {NEVER_BELOW}"
            ),
        ),
    ),
    "a minimum that no preemptor is below is warned of": Case(
        resource=a_priority_class().worth(1000).tolerating(seconds="60", below="1001").build(),
        warned=(f"{MINIMUM}: tolerates no preemptor",),
    ),
    "the minimum that upstream assumes causes no warning without seconds": Case(
        resource=a_priority_class().worth(1000).tolerating(below="1001").build()
    ),
    "a minimum not above the class's own value is, with and without them": Case(
        resource=a_priority_class().worth(1000).tolerating(below="1000").build(),
        warned=(f"{MINIMUM}: tolerates no preemptor",),
    ),
    "an unreadable toleration under the older prefix is refused": Case(
        resource=a_priority_class().annotated(OLD_TOLERATION_SECONDS, "1h").build(),
        refused=(BAD_SECONDS.replace("x-k8s.io", "sigs.k8s.io"),),
        warned=(f"{OLD_SECONDS}: unread; use *.x-k8s.io",),
    ),
    "a minimum out of range under the older prefix is refused": Case(
        resource=a_priority_class().annotated(OLD_MINIMUM, "2147483648").build(),
        refused=(f'metadata.annotations[{OLD_MINIMUM}]: Invalid value: "2147483648": {AN_INT32}',),
        warned=(f"metadata.annotations[{OLD_MINIMUM}]: unread; use *.x-k8s.io",),
    ),
    "a toleration among the labels is warned of": Case(
        resource=a_priority_class().labelled(TOLERATION_SECONDS, "60").build(),
        warned=(f"metadata.labels[*/toleration-seconds]: {ON_A_PRIORITY_CLASS}",),
    ),
    "the older prefix causes a warning": Case(
        resource=a_priority_class()
        .annotated(keys.OLD_TOLERATION_PREFIX + keys.TOLERATION_SECONDS, "60")
        .build(),
        warned=(f"{OLD_SECONDS}: unread; use *.x-k8s.io",),
    ),
    "two prefixes that differ are refused": Case(
        resource=a_priority_class()
        .tolerating(seconds="1h")
        .annotated(keys.OLD_TOLERATION_PREFIX + keys.TOLERATION_SECONDS, "60")
        .build(),
        refused=(
            BAD_SECONDS,
            (
                f'{OLD_SECONDS}: Invalid value: "60": differs from {TOLERATION_SECONDS}; '
                f"{REMOVE_THIS_ONE}"
            ),
        ),
        warned=(f"{OLD_SECONDS}: unread; use *.x-k8s.io",),
    ),
    "a PriorityClass defended above its value is admitted: only an admin creates it": Case(
        resource=DEFENDED, facts=knowing(HIGH)
    ),
    "a PriorityClass defended with itself is admitted": Case(
        resource=a_priority_class("self").defended_as("self").build()
    ),
    "a PriorityClass defended below its value is refused": Case(
        resource=a_priority_class().worth(1000).defended_as("low").build(),
        facts=knowing(LOW),
        refused=(
            (
                f'{DEFENCE}: Invalid value: "low": its value 100 is below this class\'s '
                f"value 1000: must be 1000 or higher"
            ),
        ),
    ),
    "a PriorityClass defended without a name is refused": Case(
        resource=a_priority_class().worth(1000).defended_as("").build(),
        refused=(f"{DEFENCE}: Required value: the name of a PriorityClass",),
    ),
    "a PriorityClass defended with an unknown one gets a warning": Case(
        resource=a_priority_class().worth(1000).defended_as("gold").build(),
        warned=(f"{DEFENCE}: no such PriorityClass yet; defended with 1000",),
    ),
    "a default class in range is admitted": Case(
        resource=a_priority_class().giving_class(7).build()
    ),
    "a default class out of range is refused": Case(
        resource=a_priority_class().giving_class(11).build(),
        refused=(
            f'{DEFAULT_CLASS}: Invalid value: "11": must be between 0 and 10, in plain digits',
        ),
    ),
}

NAMESPACES = {
    "a Namespace without annotations is admitted": Case(resource=a_namespace().build()),
    "a readable policy is admitted": Case(
        resource=a_namespace().for_workloads("service").giving_class(6).build()
    ),
    "an unreadable policy is refused": Case(
        resource=a_namespace().allowing_classes("all").build(),
        refused=(
            (
                f'{ALLOWED}: Invalid value: "all": must be classes or ranges between 0 '
                f"and 10, {CLASSES_LIKE}"
            ),
        ),
    ),
}

REFUSING_LOANS = Facts(settings=PolicySettings(non_preemptible_on_borrowed_nodes="refuse"))
PLACES = {
    "a non-preemptible pod that selects another Namespace's nodes causes a warning": Case(
        resource=a_pod().labelled(keys.PREEMPTIBLE, "false").on_nodes_of("lender").build(),
        warned=(
            "spec.nodeSelector[reprieve.dev/home-namespace]: non-preemptible on borrowed nodes",
        ),
    ),
    "two prefixes are refused if the policy says so": Case(
        resource=a_pod().labelled(keys.PREEMPTIBLE, "false").on_nodes_of("lender").build(),
        facts=REFUSING_LOANS,
        refused=(
            (
                "spec.nodeSelector[reprieve.dev/home-namespace]: Forbidden: "
                "a non-preemptible workload may not run on nodes that another namespace lent"
            ),
        ),
    ),
}

POLICIES = {
    "a policy that can be read is admitted": Case(resource=a_policy_map(ceiling="1h")),
    "a policy without data is admitted": Case(resource=replace(a_policy_map(), data=None)),
    "all violations of a policy are reported at once": Case(
        resource=a_policy_map(ceiling="soon", extensionPercent="101"),
        refused=(
            (
                'data[ceiling]: Invalid value: "soon": must be a duration in whole '
                'hours, minutes and seconds, like "10m", "90s" or "1h30m"'
            ),
            (
                'data[extensionPercent]: Invalid value: "101": must be a whole number '
                "between 0 and 100"
            ),
        ),
    ),
    "another ConfigMap is not checked": Case(
        resource=a_policy_map("somebody-elses", ceiling="soon")
    ),
    "another ConfigMap is checked if the program's settings name it": Case(
        resource=a_policy_map("somebody-elses", extensionPercent="101"),
        facts=Facts(policy_config_map=("reprieve-system", "somebody-elses")),
        refused=(
            (
                'data[extensionPercent]: Invalid value: "101": must be a whole number '
                "between 0 and 100"
            ),
        ),
    ),
}

OTHERS = {"an object of another kind is not checked": Case(resource=Resource(kind="ConfigMap"))}

RATCHET = {
    "an old violation does not block an update": Case(
        resource=a_pod().in_class(11).annotated("colour", "red").build(),
        old=a_pod().in_class(11).build(),
    ),
    "another bad value is a new violation": Case(
        resource=a_pod().in_class(12).build(),
        old=a_pod().in_class(11).build(),
        refused=(f'{CLASS}: Invalid value: "12": must be between 0 and 10, in plain digits',),
    ),
    "a new violation is refused beside an old one": Case(
        resource=a_pod().in_class(11).with_checkpoint("maybe").build(),
        old=a_pod().in_class(11).build(),
        refused=(
            f'{CHECKPOINT}: Unsupported value: "maybe": supported values: "auto", "manual", "none"',
        ),
    ),
    "a template that asks for yet more is refused": Case(
        resource=a_pod().in_priority_class("low").defended_as("high").in_template_of("Job"),
        old=a_pod().in_priority_class("low").defended_as("middle").in_template_of("Job"),
        facts=knowing(LOW, HIGH, a_priority_class("middle").worth(500).build()),
        refused=(
            (
                f"spec.template.{DEFENCE}: Forbidden: its value 9000 is above 100, the "
                f"highest allowed here"
            ),
        ),
    ),
    "a class that is no longer allowed does not block an update": Case(
        resource=a_pod().in_class(4).annotated("colour", "red").build(),
        old=a_pod().in_class(4).build(),
        facts=SENSITIVE,
    ),
    "an object that is being deleted is never refused": Case(
        resource=a_pod().in_class(11).being_deleted().build(), old=a_pod().build()
    ),
    "an object that is being deleted keeps a template that is not accepted": Case(
        resource=being_deleted(a_pod().in_class(11).in_template_of("StatefulSet")),
        old=a_pod().in_class(11).in_template_of("StatefulSet"),
    ),
    "a template that changes while its object is being deleted is reviewed": Case(
        resource=being_deleted(a_pod().in_class(11).in_template_of("StatefulSet")),
        old=being_deleted(a_pod().in_template_of("StatefulSet")),
        refused=(f"spec.template.{BAD_CLASS}",),
    ),
    "the template of a CronJob's Jobs too": Case(
        resource=being_deleted(a_pod().in_class(11).in_template_of("CronJob")),
        old=being_deleted(a_pod().in_template_of("CronJob")),
        refused=(f"spec.jobTemplate.spec.template.{BAD_CLASS}",),
    ),
    "a change that is no worse passes, also while its object is being deleted": Case(
        resource=being_deleted(
            a_pod().in_class(11).annotated("colour", "red").in_template_of("Job")
        ),
        old=being_deleted(a_pod().in_class(11).in_template_of("Job")),
    ),
}

CASES = {
    **PODS,
    **TEMPLATES,
    **PRIORITY_CLASSES,
    **NAMESPACES,
    **PLACES,
    **POLICIES,
    **OTHERS,
    **RATCHET,
}


def decide(case: Case) -> Verdict:
    return decide_admission(case.resource, case.old, case.facts)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_on_an_object(case: Case) -> None:
    verdict = decide(case)
    assert tuple(str(violation) for violation in verdict.violations) == case.refused
    assert verdict.warnings == case.warned


@pytest.mark.parametrize("kind", sorted(TEMPLATE_KINDS))
def test_every_kind_that_makes_pods_is_checked(kind: str) -> None:
    assert not decide(Case(resource=a_pod().in_class(11).in_template_of(kind))).is_allowed


def test_every_violation_names_its_rule() -> None:
    violations = [violation for case in CASES.values() for violation in decide(case).violations]
    assert {violation.rule for violation in violations} <= {rule.id for rule in RULES}


def test_warnings_fit_into_a_line() -> None:
    warnings = [warning for case in CASES.values() for warning in decide(case).warnings]
    longest = keys.OLD_TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY
    warnings.extend(
        decide(Case(resource=a_priority_class().annotated(longest, "2000").build())).warnings
    )
    deepest = (
        a_pod().labelled(keys.CAN_PREEMPT, "true").preempting("Never").in_template_of("CronJob")
    )
    warnings.extend(decide(Case(resource=deepest)).warnings)
    assert all(len(warning) < 120 for warning in warnings)


def in_mode(enforcement: str) -> Facts:
    return Facts(namespace=NamespacePolicy(enforcement=enforcement))


def test_with_enforcement_warn_violations_become_warnings() -> None:
    verdict = decide_admission(a_pod().in_class(11).build(), None, in_mode("warn"))
    assert verdict == Verdict(warnings=(BAD_CLASS,))


def test_with_enforcement_off_nothing_is_reported() -> None:
    assert decide_admission(a_pod().in_class(11).build(), None, in_mode("off")) == Verdict()


def test_a_bad_value_is_a_bad_request_and_a_ratchet_is_forbidden() -> None:
    assert decide(PODS["a pod of class 11 is refused"]).status is HTTPStatus.BAD_REQUEST
    assert decide(PODS["a class that rises is forbidden"]).status is HTTPStatus.FORBIDDEN


def test_every_rule_has_a_docstring() -> None:
    assert all((rule.check.__doc__ or "").strip() for rule in RULES)
    assert all((sys.modules[rule.check.__module__].__doc__ or "").strip() for rule in RULES)


def test_the_ids_of_rules_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_of_very_many_violations_the_first_are_shown_and_the_rest_is_counted() -> None:
    many = a_policy_map(**{f"unknown{number}": "x" for number in range(5000)})
    verdict = decide_admission(many, None, Facts())
    assert not verdict.is_allowed
    assert len(verdict.violations) == review.MAX_MESSAGES
    assert verdict.warnings == ("more findings than can be shown: 4900 are left out",)


def test_very_many_violations_refuse_nothing_with_enforcement_warn() -> None:
    warned = Facts(namespace=NamespacePolicy(enforcement="warn"))
    many = a_policy_map(**{f"unknown{number}": "x" for number in range(200)})
    verdict = decide_admission(many, None, warned)
    assert verdict.is_allowed
    assert len(verdict.warnings) == review.MAX_MESSAGES + 1
