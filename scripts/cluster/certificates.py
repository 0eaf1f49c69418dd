"""The certificates and keys of a control plane. They are valid for 30 days."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def write_certificates(directory: Path, addresses: list[str]) -> None:
    """Writes `ca.crt`, `server.crt` and `server.key` of the API server, `sa.key` and `sa.pub` of service accounts."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_key, server_key, account_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    ca = _certificate("cornserve-test-ca", ca_key, "cornserve-test-ca", ca_key, [])
    server = _certificate("kube-apiserver", server_key, "cornserve-test-ca", ca_key, addresses)
    (directory / "ca.crt").write_bytes(ca.public_bytes(Encoding.PEM))
    (directory / "server.crt").write_bytes(server.public_bytes(Encoding.PEM))
    (directory / "server.key").write_bytes(_private(server_key))
    (directory / "sa.key").write_bytes(_private(account_key))
    public = account_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (directory / "sa.pub").write_bytes(public)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    addresses: list[str],
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=not addresses, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if addresses:
        names = [x509.DNSName(name) for name in _NAMES]
        ips = [x509.IPAddress(ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName([*names, *ips]), critical=False)
    else:
        builder = builder.add_extension(_CA_USAGE, critical=True)
    return builder.sign(issuer_key, hashes.SHA256())


_CA_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
