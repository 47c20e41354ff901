"""Every label, annotation and finalizer that Reprieve reads or writes, each defined once.

Upstream keys stand under their own names; only what no project has gets the prefix `reprieve.dev/`.
"""

PREFIX = "reprieve.dev/"

# What a workload says of itself: on a Pod, or on any template that makes pods.
PREEMPTION_CLASS = PREFIX + "preemption-class"
CHECKPOINT = PREFIX + "checkpoint"
CHECKPOINT_HINT = PREFIX + "checkpoint-hint"
CHECKPOINT_TIMEOUT = PREFIX + "checkpoint-timeout"
MAX_DEFERRAL = PREFIX + "max-deferral"
ESTIMATED_CHECKPOINT_TIME = PREFIX + "estimated-checkpoint-time"
PREEMPTION_PRIORITY_CLASS = PREFIX + "preemption-priority-class"
REQUEUE = PREFIX + "requeue"
AGENT = PREFIX + "agent"
REQUEUE_ENV = PREFIX + "requeue-env"

# The annotation carrier: Reprieve writes the request, the workload writes the answer.
CHECKPOINT_REQUEST = PREFIX + "checkpoint-request"
CHECKPOINT_ANSWER = PREFIX + "checkpoint-answer"

# What an admin says of a Namespace or a PriorityClass.
WORKLOAD_TYPE = PREFIX + "workload-type"
ALLOWED_PREEMPTION_CLASSES = PREFIX + "allowed-preemption-classes"
DEFAULT_PREEMPTION_CLASS = PREFIX + "default-preemption-class"
ENFORCEMENT = PREFIX + "enforcement"

# What an admin says of a Node, as a label or as a taint: whose it is. To every other Namespace it is borrowed.
HOME_NAMESPACE = PREFIX + "home-namespace"

# Upstream: scheduler-plugins PreemptionToleration (document 002). Shipped code reads only the first prefix.
TOLERATION_PREFIX = "preemption-toleration.scheduling.x-k8s.io/"
OLD_TOLERATION_PREFIX = "preemption-toleration.scheduling.sigs.k8s.io/"
MINIMUM_PREEMPTABLE_PRIORITY = "minimum-preemptable-priority"
TOLERATION_SECONDS = "toleration-seconds"

# Upstream: Koordinator (document 000). SOFT_EVICTION is both a label and an annotation there.
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
KOORDINATOR_SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"

# Upstream: Koordinator writes what is used to its ElasticQuotas, and an admin whose pods use them.
NON_PREEMPTIBLE_REQUEST = "quota.scheduling.koordinator.sh/non-preemptible-request"
NON_PREEMPTIBLE_USED = "quota.scheduling.koordinator.sh/non-preemptible-used"
QUOTA_NAMESPACES = "quota.scheduling.koordinator.sh/namespaces"

# A victim. Users may set the label to `requested` only; every other value is a phase, written by Reprieve.
SOFT_EVICTION = PREFIX + "soft-eviction"
EVICTION = PREFIX + "eviction"
# Which native Eviction asks that the pod go, written by the operator as the responder that it is; see `mark`.
EVICTION_REQUEST = PREFIX + "eviction-request"
# For which pod a scheduler takes this one, by uid, written by the guard beside its mark: what a mark says, its author says.
PREEMPTOR = PREFIX + "preemptor"
CLEANUP_FINALIZER = PREFIX + "cleanup"

# A gang's pod that waits for the others: the scheduling gate, and the label (`waiting`) by which a watch selects such pods.
GANG_GATE = PREFIX + "gang"
GANG_GATE_LABEL = PREFIX + "gang-gate"

# A replacement, written by Reprieve when its pod is created.
PREEMPTED_COUNT = PREFIX + "preempted-count"
FIRST_SUBMITTED_AT = PREFIX + "first-submitted-at"
RESUME_FROM_CHECKPOINT = PREFIX + "resume-from-checkpoint"
LAST_CHECKPOINT_AT = PREFIX + "last-checkpoint-at"
# One that Reprieve made itself: the uid of the pod in whose place it is.
REQUEUED_FROM = PREFIX + "requeued-from"

# On the record of a bare pod that Reprieve will make anew (a ControllerRevision in its own namespace), the label: its namespace.
BARE_POD = PREFIX + "bare-pod"

# On the owner: the annotation holds what its next pod inherits, the label (`"true"`) lets a watch select such owners.
LEDGER = PREFIX + "ledger"

# On a Job that Reprieve has suspended: the annotation says until when, the label (`"true"`) finds it.
SUSPENDED = PREFIX + "suspended"

# Set by the Job controller on all pods of a Job, and on those of an Indexed one.
JOB_UID = "batch.kubernetes.io/controller-uid"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

# Gangs. Upstream: Kubernetes' scheduler-plugins and its lightweight forebear, document 004, Koordinator, Volcano, Kueue,
# JobSet, LeaderWorkerSet and the Job controller; `gang` says which means what.
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
