"""The content of the Secret as one value: the CAs (signing, next, retired) and the certificate.

`ca.crt` holds the CAs that clients must trust, and is injected unchanged; its order is signing CA,
next CA, retired CAs. The private key of a retired CA is deleted. Its certificate stays until it
expires: by then every serving certificate that it can have signed has expired, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from .issue import Credential, parse_credential

CA_CERTIFICATES, CA_KEY = "ca.crt", "ca.key"
SERVING_CERTIFICATE, SERVING_KEY = "tls.crt", "tls.key"
NEXT_CA_CERTIFICATE, NEXT_CA_KEY = "next-ca.crt", "next-ca.key"
KEYS = (CA_CERTIFICATES, CA_KEY, SERVING_CERTIFICATE, SERVING_KEY, NEXT_CA_CERTIFICATE, NEXT_CA_KEY)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A CA, its serving certificate, and the CAs that are trusted during a handover."""

    ca: Credential
    serving: Credential
    next_ca: Credential | None = None
    retired: tuple[x509.Certificate, ...] = ()

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """Every CA that clients must trust, the signing one first."""
        next_ca = () if self.next_ca is None else (self.next_ca.certificate,)
        return (self.ca.certificate, *next_ca, *self.retired)

    @property
    def trusted_pem(self) -> bytes:
        """`trusted` as it is injected into webhook configurations."""
        return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.trusted)

    @property
    def is_signed_by_ca(self) -> bool:
        """True if the signing CA issued the serving certificate."""
        try:
            self.serving.certificate.verify_directly_issued_by(self.ca.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def render(bundle: Bundle) -> dict[str, bytes]:
    """Return the Secret's data."""
    data = {
        CA_CERTIFICATES: bundle.trusted_pem,
        CA_KEY: bundle.ca.key_pem,
        SERVING_CERTIFICATE: bundle.serving.certificate_pem,
        SERVING_KEY: bundle.serving.key_pem,
    }
    if bundle.next_ca is not None:
        data |= {
            NEXT_CA_CERTIFICATE: bundle.next_ca.certificate_pem,
            NEXT_CA_KEY: bundle.next_ca.key_pem,
        }
    return data


def parse(data: Mapping[str, bytes]) -> Bundle | None:
    """Read what `render` wrote; `None` if the Secret is empty, incomplete or damaged.

    In that case new certificates are issued.
    """
    try:
        signing, *others = x509.load_pem_x509_certificates(data[CA_CERTIFICATES])
        next_ca = None
        if NEXT_CA_CERTIFICATE in data:
            next_ca = parse_credential(data[NEXT_CA_CERTIFICATE], data[NEXT_CA_KEY])
        return Bundle(
            ca=parse_credential(signing.public_bytes(Encoding.PEM), data[CA_KEY]),
            serving=parse_credential(data[SERVING_CERTIFICATE], data[SERVING_KEY]),
            next_ca=next_ca,
            retired=tuple(
                other for other in others if next_ca is None or other != next_ca.certificate
            ),
        )
    except (KeyError, ValueError, TypeError):
        return None


def recover_ca_certificates(data: Mapping[str, bytes]) -> tuple[x509.Certificate, ...]:
    """Return the CAs in a damaged Secret: other replicas may serve certificates signed by them."""
    try:
        return tuple(x509.load_pem_x509_certificates(data[CA_CERTIFICATES]))
    except (KeyError, ValueError):
        return ()
