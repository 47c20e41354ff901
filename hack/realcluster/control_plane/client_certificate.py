"""The API server's certificate towards kubelets: `kubectl exec` and `logs` need it. Pure.

The API server cannot use a token towards kubelets. One self-signed P-256 certificate is enough: the
kubelet gets it as its client certificate authority, and Go accepts a certificate that is itself
among the authorities. The certificate names no key usage, so all are allowed.
"""

from __future__ import annotations

import base64
import hashlib
import secrets

from .keys import HEAD, P256_ORDER, TAIL

# The curve (FIPS 186-4, D.1.2.3): y² = x³ - 3x + b modulo P; multiples of G make up the group.
P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int] | None  # None is the group's zero

INTEGER, BIT_STRING, OBJECT, UTF8, SEQUENCE, SET, GENERALIZED_TIME, UTC_TIME = (
    0x02,
    0x03,
    0x06,
    0x0C,
    0x30,
    0x31,
    0x18,
    0x17,
)
VERSION_3 = bytes.fromhex("a003020102")
EC_PUBLIC_KEY = bytes.fromhex("2a8648ce3d0201")
PRIME256V1 = bytes.fromhex("2a8648ce3d030107")
ECDSA_WITH_SHA256 = bytes.fromhex("2a8648ce3d040302")
COMMON_NAME, ORGANIZATION = bytes.fromhex("550403"), bytes.fromhex("55040a")


def new_client_pair(user: str, group: str) -> tuple[str, str]:
    """Return a new certificate for `user` of `group`, and its private key, both as PEM."""
    key = secrets.randbelow(P256_ORDER - 1) + 1
    # RFC 5280 does not require an order of a name's attributes; each set has one attribute.
    name = _der(SEQUENCE, _attribute(ORGANIZATION, group), _attribute(COMMON_NAME, user))
    algorithm = _der(SEQUENCE, _der(OBJECT, ECDSA_WITH_SHA256))
    validity = _der(
        SEQUENCE, _der(UTC_TIME, b"200101000000Z"), _der(GENERALIZED_TIME, b"20991231235959Z")
    )
    body = _der(
        SEQUENCE,
        VERSION_3,
        _integer(secrets.randbits(120)),
        algorithm,
        name,
        validity,
        name,
        _public_key(key),
    )
    certificate = _der(SEQUENCE, body, algorithm, _der(BIT_STRING, b"\0", _sign(key, body)))
    return _pem("CERTIFICATE", certificate), _pem(
        "EC PRIVATE KEY", HEAD + key.to_bytes(32, "big") + TAIL
    )


def multiply(number: int, point: Point) -> Point:
    """Return `number` times `point` on the curve, by double and add.

    Timing attacks do not matter here.
    """
    total: Point = None
    while number:
        if number & 1:
            total = _add(total, point)
        point = _add(point, point)
        number >>= 1
    return total


def _add(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (
        (3 * x1 * x1 - 3) * pow(2 * y1, -1, P) if one == other else (y2 - y1) * pow(x2 - x1, -1, P)
    )
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def _sign(key: int, message: bytes) -> bytes:
    """Return the ECDSA signature (SEC 1, 4.1.3) of `message`."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        once = secrets.randbelow(P256_ORDER - 1) + 1
        point = multiply(once, G)
        r = point[0] % P256_ORDER if point else 0
        s = pow(once, -1, P256_ORDER) * (digest + r * key) % P256_ORDER
        if r and s:
            return _der(SEQUENCE, _integer(r), _integer(s))


def _public_key(key: int) -> bytes:
    point = multiply(key, G)
    assert point is not None  # `key` is between 1 and the group's order minus one
    uncompressed = b"\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big")
    algorithm = _der(SEQUENCE, _der(OBJECT, EC_PUBLIC_KEY), _der(OBJECT, PRIME256V1))
    return _der(SEQUENCE, algorithm, _der(BIT_STRING, b"\0", uncompressed))


def _attribute(kind: bytes, value: str) -> bytes:
    return _der(SET, _der(SEQUENCE, _der(OBJECT, kind), _der(UTF8, value.encode())))


def _integer(number: int) -> bytes:
    # One more bit for the sign.
    return _der(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _pem(kind: str, data: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(data).decode()}-----END {kind}-----\n"
