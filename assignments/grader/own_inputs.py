"""Hidden inputs of a student's own: drawn from a seed that a secret and the student's name decide.

By default a course has one set of hidden inputs for everybody. Where an instructor asks for it, everybody gets others:
what one student finds out about them is then of no use to another. The same secret gives the same student the same
inputs again, in another folder and on another machine.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

SHORTEST = 16  # characters of a secret


def seed_of(secret: str, assignment: str, student: str) -> int:
    """The seed of a student's hidden inputs, from 0 to 2^62 - 1. Without the secret nobody can compute it."""
    said = f"{assignment}\0{student}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hmac.new(secret.encode(), said, hashlib.sha256).digest()[:8], "big") >> 2


def read_secret(path: Path) -> str:
    """The secret in a file; one that is not there is made, for its owner only. Raises ``ValueError`` for a short one."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        secret = path.read_text("utf-8").strip()
    else:
        with open(number, "w", encoding="utf-8") as file:
            secret = secrets.token_hex(16)
            file.write(f"{secret}\n")
    if len(secret) < SHORTEST:
        raise ValueError(f"inputs-per-student: the secret in {str(path)!r} has {len(secret)} characters, expected at least {SHORTEST}")
    return secret
