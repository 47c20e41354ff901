"""Mutating and validating webhook configurations: how the API server calls each webhook."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .objects import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookService:
    """The Service of a webhook, and the path below it."""

    namespace: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookClientConfig:
    """The address of a webhook, and the CA that signed its certificate."""

    url: str = ""
    service: WebhookService | None = None
    caBundle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook of a configuration."""

    name: str
    clientConfig: WebhookClientConfig = field(default_factory=WebhookClientConfig)
    failurePolicy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfiguration:
    """A mutating or a validating configuration."""

    metadata: ObjectMeta
    webhooks: Sequence[Webhook] | None = None
