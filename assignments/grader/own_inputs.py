"""Hidden inputs of a student's own: drawn from a seed that a secret and the student's name decide.

Where an instructor asks for it, what one student finds out about the hidden inputs is then of no use to another. The same
secret gives the same student the same inputs again, in another folder and on another machine.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

SHORTEST = 16  # characters of a secret


def seed_of(secret: str, assignment: str, student: str) -> int:
    """The seed of a student's hidden inputs, from 0 to 2^62 - 1. Without the secret nobody can compute it."""
    said = f"{assignment}\0{student}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hmac.new(secret.encode(), said, hashlib.sha256).digest()[:8], "big") >> 2


def read_secret(path: Path) -> str:
    """The secret in a file; one that is not there is made, for its owner only.

    Raises ``ValueError`` for a short one, and for one that other users of the machine can read or could have written.
    """
    said = f"inputs-per-student: the secret in {str(path)!r}"
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as kept:
            status = os.fstat(kept.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o077:
                seen = said.replace("the secret", "other users can read the secret")
                raise ValueError(f"{seen} or could have written it: take another one, with mode 600") from None
            try:
                secret = kept.read().decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise ValueError(f"{said} is not text in UTF-8") from error
    else:
        with open(number, "w", encoding="utf-8") as file:
            secret = secrets.token_hex(16)
            file.write(f"{secret}\n")
    if len(secret) < SHORTEST:
        raise ValueError(f"{said} has {len(secret)} characters, expected at least {SHORTEST}")
    return secret
