"""Which label or annotation accepts which values: the table that Python and CEL check objects by.

The order of the rows is the order of their violations. Checks of more than one field (a raised
class, a minimum below the value) are in the rules themselves.
"""

from typing import Any, Literal, NamedTuple

from reprieve_policy import keys
from reprieve_policy.checkpointing import agent, checkpoint_plan
from reprieve_policy.config import koordinator, preemption_class, toleration
from reprieve_policy.config.annotation_values import Value
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.verdict import annotation_path, label_path


class MetadataField(NamedTuple):
    """One metadata key, its rule, and the values that it accepts."""

    rule: str
    part: Literal["labels", "annotations"]
    key: str
    value: Value[Any]

    def path(self, prefix: str = "") -> str:
        """Return its path under `prefix` (`""` or `"spec.template."`)."""
        return (label_path if self.part == "labels" else annotation_path)(prefix, self.key)


def pod_fields(settings: PolicySettings) -> tuple[MetadataField, ...]:
    """Return the fields of pods and of templates."""
    return (
        MetadataField("preemption-class", "labels", keys.PREEMPTION_CLASS, preemption_class.CLASS),
        MetadataField("koordinator-labels", "labels", keys.PREEMPTIBLE, koordinator.BOOLEAN),
        MetadataField("koordinator-labels", "labels", keys.CAN_PREEMPT, koordinator.BOOLEAN),
        *(
            MetadataField("checkpoint", "annotations", key, value)
            for key, value in checkpoint_plan.accepted_values(settings).items()
        ),
        MetadataField("agent", "annotations", keys.AGENT, agent.ACCEPTED_VALUES),
    )


PRIORITY_CLASS_FIELDS = (
    *(
        MetadataField("preemption-toleration", "annotations", key, value)
        for key, value in zip(
            toleration.annotation_keys(keys.TOLERATION_PREFIX),
            (toleration.MINIMUM, toleration.SECONDS),
            strict=True,
        )
    ),
    MetadataField(
        "priority-class-default",
        "annotations",
        keys.DEFAULT_PREEMPTION_CLASS,
        preemption_class.CLASS,
    ),
)
