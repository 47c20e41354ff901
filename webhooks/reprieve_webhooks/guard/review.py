"""Reading the two reviews that the guard gets: the deletion of a pod, which holds the pod, and an eviction, which names it."""

import msgspec

from reprieve_webhooks.admission.review import API_VERSION, GroupVersionKind, Malformed, UserInfo

from .objects import GuardedPod


class _Preconditions(msgspec.Struct, gc=False, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, gc=False, rename="camel"):
    dry_run: tuple[str, ...] | None = None
    preconditions: _Preconditions | None = None


class _Eviction(msgspec.Struct, gc=False, rename="camel"):
    delete_options: _DeleteOptions | None = None


class GuardRequest(msgspec.Struct, gc=False, rename="camel"):
    """Somebody wants a pod gone."""

    uid: str
    operation: str
    kind: GroupVersionKind
    name: str = ""
    namespace: str = ""
    object: _Eviction | None = None
    old_object: GuardedPod | None = None
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    dry_run: bool | None = None

    @property
    def is_eviction(self) -> bool:
        """True for a review of `pods/eviction`."""
        return (self.operation, self.kind.kind) == ("CREATE", "Eviction")

    @property
    def is_deletion(self) -> bool:
        """True for the review of a pod's deletion."""
        return (self.operation, self.kind.kind, self.kind.group) == ("DELETE", "Pod", "")

    @property
    def is_dry_run(self) -> bool:
        """True where nothing is to happen; an eviction says it in its body, which is what `kubectl drain` sends."""
        options = self.object.delete_options if self.object else None
        return bool(self.dry_run) or bool(options and options.dry_run)

    def matches(self, pod: GuardedPod) -> bool:
        """False where an eviction is of another pod of that name, or of another state of it: the API server will refuse it."""
        options = self.object.delete_options if self.object else None
        asked = options.preconditions if options else None
        if asked is None:
            return True
        return asked.uid in (None, pod.uid) and asked.resource_version in (
            None,
            pod.metadata.resourceVersion,
        )


class _GuardReview(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    request: GuardRequest | None = None


_DECODER = msgspec.json.Decoder(_GuardReview)


def parse(body: bytes) -> GuardRequest | Malformed:
    """Return the request of a review."""
    try:
        review = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        return Malformed(f"not an AdmissionReview: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return Malformed(f"not JSON: {error}")
    except UnicodeDecodeError:
        return Malformed("not JSON: not UTF-8")
    if review.api_version != API_VERSION:
        return Malformed(f"apiVersion must be {API_VERSION}")
    return review.request or Malformed("not an AdmissionReview: no request")
