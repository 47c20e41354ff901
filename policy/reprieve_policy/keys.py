"""Every label, annotation and finalizer that Reprieve reads or writes, each defined once.

Upstream keys have their own names. Only keys that exist in no other project have the prefix
`reprieve.dev/`.
"""

PREFIX = "reprieve.dev/"

# What a workload states about itself: on a Pod, or on any template that makes pods.
PREEMPTION_CLASS = PREFIX + "preemption-class"
CHECKPOINT = PREFIX + "checkpoint"
CHECKPOINT_HINT = PREFIX + "checkpoint-hint"
CHECKPOINT_TIMEOUT = PREFIX + "checkpoint-timeout"
MAX_DEFERRAL = PREFIX + "max-deferral"
ESTIMATED_CHECKPOINT_TIME = PREFIX + "estimated-checkpoint-time"
PREEMPTION_PRIORITY_CLASS = PREFIX + "preemption-priority-class"
REQUEUE = PREFIX + "requeue"
DISRUPTION_MODE = PREFIX + "disruption-mode"
# Written by Reprieve to the pods of a gang that is evicted pod by pod: the `minMember` of its
# PodGroup.
MIN_MEMBER = PREFIX + "min-member"
AGENT = PREFIX + "agent"
REQUEUE_ENV = PREFIX + "requeue-env"
# The finalizers whose owners clean up before SIGTERM.
CLEANERS_BEFORE = PREFIX + "cleaners-before"

# The annotation transport: Reprieve writes the request, the workload writes the answer.
CHECKPOINT_REQUEST = PREFIX + "checkpoint-request"
CHECKPOINT_ANSWER = PREFIX + "checkpoint-answer"

# What an admin sets on a Namespace or a PriorityClass.
WORKLOAD_TYPE = PREFIX + "workload-type"
ALLOWED_PREEMPTION_CLASSES = PREFIX + "allowed-preemption-classes"
DEFAULT_PREEMPTION_CLASS = PREFIX + "default-preemption-class"
ENFORCEMENT = PREFIX + "enforcement"

# What an admin sets on a Node, as a label or as a taint: the Namespace that owns the node. For
# every other Namespace the node is borrowed.
HOME_NAMESPACE = PREFIX + "home-namespace"

# Upstream: scheduler-plugins PreemptionToleration (document 002). Shipped code reads only the first
# prefix.
TOLERATION_PREFIX = "preemption-toleration.scheduling.x-k8s.io/"
OLD_TOLERATION_PREFIX = "preemption-toleration.scheduling.sigs.k8s.io/"
MINIMUM_PREEMPTABLE_PRIORITY = "minimum-preemptable-priority"
TOLERATION_SECONDS = "toleration-seconds"

# Upstream: Koordinator (document 000). There, KOORDINATOR_SOFT_EVICTION is both a label and an
# annotation.
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
KOORDINATOR_SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"

# Upstream: on an ElasticQuota. Koordinator writes the amounts used; an admin lists the namespaces
# whose pods use the quota.
NON_PREEMPTIBLE_REQUEST = "quota.scheduling.koordinator.sh/non-preemptible-request"
NON_PREEMPTIBLE_USED = "quota.scheduling.koordinator.sh/non-preemptible-used"
QUOTA_NAMESPACES = "quota.scheduling.koordinator.sh/namespaces"

# On a victim. Users may set the label to `requested` only. Reprieve writes every other value:
# `evict` and `marked` (`lifecycle.mark`), or the phase of the victim (`lifecycle.eviction`).
SOFT_EVICTION = PREFIX + "soft-eviction"
EVICTION = PREFIX + "eviction"
# The uid of the pod for which a scheduler takes this one. The guard writes it beside its mark,
# because a mark itself holds only what its author wrote.
PREEMPTOR = PREFIX + "preemptor"
# Since when a preemption of the pod is refused on a ground that its owner can renew, with the pod's
# uid (`preemption.first_refusal`).
REFUSED_SINCE = PREFIX + "refused-since"
# Written by earlier versions; no longer read, and refused in templates.
EVICTION_REQUEST = PREFIX + "eviction-request"
CLEANUP_FINALIZER = PREFIX + "cleanup"

# On a gang's pod that waits for the other members: the scheduling gate, and the label by which a
# watch selects such pods: `waiting`, then `released` until the gang is placed. The annotation says
# when the gate was removed.
GANG_GATE = PREFIX + "gang"
GANG_GATE_LABEL = PREFIX + "gang-gate"
GANG_RELEASED_AT = PREFIX + "gang-released-at"

# On a replacement, written by Reprieve when the pod is created.
PREEMPTED_COUNT = PREFIX + "preempted-count"
FIRST_SUBMITTED_AT = PREFIX + "first-submitted-at"
RESUME_FROM_CHECKPOINT = PREFIX + "resume-from-checkpoint"
LAST_CHECKPOINT_AT = PREFIX + "last-checkpoint-at"
LAST_CHECKPOINT_TOOK = PREFIX + "last-checkpoint-took"
# On a pod that Reprieve itself made: the uid of the pod that it replaces.
REQUEUED_FROM = PREFIX + "requeued-from"

# The label on the record of a bare pod that Reprieve will create again (a ControllerRevision in
# Reprieve's own namespace): the pod's namespace.
BARE_POD = PREFIX + "bare-pod"

# On the owner: the annotation holds what its next pod inherits. The label (`"true"`) lets a watch
# select such owners.
LEDGER = PREFIX + "ledger"

# On a Job that Reprieve has suspended: the annotation holds the time until which it stays
# suspended. The label (`"true"`) lets a watch select such Jobs.
SUSPENDED = PREFIX + "suspended"

# Set by the Job controller: the first on all pods of a Job, the second on those of an Indexed Job.
JOB_UID = "batch.kubernetes.io/controller-uid"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

# Gangs. Upstream: Kubernetes' scheduler-plugins and its predecessor, document 004, Koordinator,
# Volcano, Kueue, JobSet, LeaderWorkerSet and the Job controller; `gangs.dialects` has the meaning
# of each.
POD_GROUP = "scheduling.x-k8s.io/pod-group"
KOORDINATOR_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
OLD_POD_GROUP = "pod-group.scheduling.sigs.k8s.io/name"
OLD_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
DRAFT_POD_GROUP = "pod-group/name"
DRAFT_MIN_AVAILABLE = "pod-group/min-available"
KOORDINATOR_GANG = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
KOORDINATOR_TOTAL = "gang.scheduling.koordinator.sh/total-number"
KOORDINATOR_MODE = "gang.scheduling.koordinator.sh/mode"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
VOLCANO_OWN_GROUP = "scheduling.volcano.sh/group-name"
VOLCANO_TASK = "volcano.sh/task-spec"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_PARENT = "kueue.x-k8s.io/pod-suspending-parent"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_WORKER_SIZE = "leaderworkerset.sigs.k8s.io/size"
JOB = "batch.kubernetes.io/job-name"


def every_key() -> frozenset[str]:
    """Return all labels, annotations and finalizers that are defined here.

    Each has a domain, with a `.` or a `/`; other texts are parts of keys.
    """
    return frozenset(
        text
        for name, text in globals().items()
        if name.isupper() and isinstance(text, str) and ("." in text or "/" in text)
    )
