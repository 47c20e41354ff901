"""Decides the next renewal step from `now` and the dates of the certificates only.

A clock that jumps leads to a new decision. A CA is replaced in two steps, so that no client ever
sees a certificate that it does not trust: the next CA is first only *trusted* (`STAGE_CA`), and
signs after every webhook configuration was seen to contain it (`PROMOTE_CA`).
"""

from datetime import datetime, timedelta
from enum import Enum

from cryptography import x509

from . import issue
from .bundle import Bundle
from .issue import ServingNames

CA_PROPAGATION = timedelta(minutes=1)
"""The minimum time from staging a CA to its first signature.

Every API server must update its cache of webhook configurations, which normally takes milliseconds.
"""

MAX_RETIRED = 8
"""Retired CAs kept, newest first: a clock that jumps back and forth makes a CA each time, and the
size of a Secret is limited."""


class RenewalStep(Enum):
    """One change to the Secret."""

    REPLACE_ALL = "replace-all"
    STAGE_CA = "stage-ca"
    PROMOTE_CA = "promote-ca"
    ISSUE_SERVING = "issue-serving"
    FORGET_EXPIRED = "forget-expired"


def decide_renewal(
    now: datetime, bundle: Bundle | None, names: ServingNames, *, is_next_trusted: bool
) -> RenewalStep | None:
    """Return the next step, `None` if nothing is due.

    `is_next_trusted`: every webhook configuration was just seen to contain the next CA.
    """
    if bundle is None or not _is_valid(bundle.ca.certificate, now):
        return RenewalStep.REPLACE_ALL
    if any(_is_expired(certificate, now) for certificate in bundle.trusted):
        return RenewalStep.FORGET_EXPIRED
    if (
        bundle.next_ca is not None
        and is_next_trusted
        and now >= _issued_at(bundle.next_ca.certificate) + CA_PROPAGATION
    ):
        return RenewalStep.PROMOTE_CA
    if bundle.next_ca is None and _is_due(bundle.ca.certificate, now):
        return RenewalStep.STAGE_CA
    serving = bundle.serving.certificate
    if not bundle.is_signed_by_ca or not names.are_all_in(serving):
        return RenewalStep.ISSUE_SERVING
    is_current = _is_valid(serving, now) and not _is_due(serving, now)
    return None if is_current else RenewalStep.ISSUE_SERVING


def apply_step(
    step: RenewalStep,
    bundle: Bundle | None,
    names: ServingNames,
    now: datetime,
    *,
    salvaged: tuple[x509.Certificate, ...] = (),
) -> Bundle:
    """Return the bundle after `step`. `salvaged`: CAs that stay trusted if there is no bundle."""
    if bundle is None or step is RenewalStep.REPLACE_ALL:
        return _replace_all(salvaged if bundle is None else bundle.trusted, names, now)
    kept = _still_trusted(bundle.retired, now)
    next_ca = (
        bundle.next_ca
        if bundle.next_ca and not _is_expired(bundle.next_ca.certificate, now)
        else None
    )
    if step is RenewalStep.PROMOTE_CA and next_ca is not None:
        serving = issue.issue_serving(next_ca, names, now)
        return Bundle(next_ca, serving, None, (bundle.ca.certificate, *kept))
    if step is RenewalStep.STAGE_CA:
        return Bundle(bundle.ca, bundle.serving, issue.issue_ca(now), kept)
    if step is RenewalStep.ISSUE_SERVING:
        return Bundle(bundle.ca, issue.issue_serving(bundle.ca, names, now), next_ca, kept)
    return Bundle(bundle.ca, bundle.serving, next_ca, kept)


def _replace_all(
    trusted: tuple[x509.Certificate, ...], names: ServingNames, now: datetime
) -> Bundle:
    ca = issue.issue_ca(now)
    return Bundle(ca, issue.issue_serving(ca, names, now), None, _still_trusted(trusted, now))


def _still_trusted(
    certificates: tuple[x509.Certificate, ...], now: datetime
) -> tuple[x509.Certificate, ...]:
    unexpired = (certificate for certificate in certificates if not _is_expired(certificate, now))
    return tuple(unexpired)[:MAX_RETIRED]


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _is_expired(certificate: x509.Certificate, now: datetime) -> bool:
    return now >= certificate.not_valid_after_utc


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """True in the last third of the certificate's lifetime."""
    until = certificate.not_valid_after_utc
    return until - now < (until - _issued_at(certificate)) / 3


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + issue.BACKDATED
