"""A certificate for this machine, made by openssl."""

import subprocess
from pathlib import Path

import pytest


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key; without openssl the test is skipped."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl, which makes the certificate, is not here")
    return certificate, key
