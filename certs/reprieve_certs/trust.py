"""When the CA expires that a webhook configuration trusts, for a reader without the Secret."""

from datetime import datetime

from cryptography import x509


def ca_expires_at(trusted_pem: bytes) -> datetime | None:
    """Return when the signing CA, the first in a `caBundle`, expires; `None` if unreadable."""
    try:
        signing, *_ = x509.load_pem_x509_certificates(trusted_pem)
    except ValueError:
        return None
    return signing.not_valid_after_utc
