"""Issues certificates: a CA that may sign serving certificates only, and those. No I/O, no clock.

All keys are ECDSA P-256: every TLS 1.2 client supports it, and a handshake takes a tenth of the
server's time with RSA.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME = timedelta(days=365)
"""A year: its last third, in which the next CA takes over, is longer than `SERVING_LIFETIME`."""
SERVING_LIFETIME = timedelta(days=90)
BACKDATED = timedelta(hours=1)
"""Certificates are valid from this long before now, for API servers whose clock is behind."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True, slots=True)
class ServingNames:
    """The names in the certificate: a Service's DNS names, or addresses for webhooks with a URL."""

    dns: tuple[str, ...] = ()
    ips: tuple[IPv4Address | IPv6Address, ...] = ()

    def are_all_in(self, certificate: x509.Certificate) -> bool:
        """True if `certificate` is valid for each of the names."""
        try:
            names = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
        except x509.ExtensionNotFound:
            return False
        dns, ips = (
            names.get_values_for_type(x509.DNSName),
            names.get_values_for_type(x509.IPAddress),
        )
        return set(self.dns) <= set(dns) and set(self.ips) <= set(ips)


def issue_ca(now: datetime) -> Credential:
    """Return a new self-signed CA that may sign leaf certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The date distinguishes two CAs in `openssl` output; clients match by key identifier.
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"reprieve-webhooks-ca-{now:%Y%m%d%H%M%S}")]
    )
    builder = (
        _builder(name, name, key, now, now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Credential(builder.sign(key, hashes.SHA256()), key)


def issue_serving(ca: Credential, names: ServingNames, now: datetime) -> Credential:
    """Return a new serving certificate, which never outlives the CA that signs it."""
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + SERVING_LIFETIME, ca.certificate.not_valid_after_utc)
    alternative = [*map(x509.DNSName, names.dns), *map(x509.IPAddress, names.ips)]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "reprieve-webhooks")])
    builder = (
        _builder(subject, ca.certificate.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False
        )
    )
    return Credential(builder.sign(ca.key, hashes.SHA256()), key)


def parse_credential(certificate_pem: bytes, key_pem: bytes) -> Credential:
    """Read a certificate and its key; `ValueError` if one is unreadable or they do not match."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    key = load_pem_private_key(key_pem, password=None)
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or certificate.public_key() != key.public_key()
    ):
        raise ValueError("the private key does not belong to the certificate")
    return Credential(certificate, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
