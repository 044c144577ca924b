"""Whether a commit is signed by somebody who was named beforehand: by ssh's allowed signers, or by OpenPGP keys.

The keys of whoever runs this do not count, only those in the files given; neither do programs that a repository's own
configuration names. Git and its helpers do the cryptography.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from gpubudget.errors import GpuBudgetError, RefusedError
from gpubudget.gitops.gitprocess import printable
from gpubudget.gitops.repository import Repository

_ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
_SETTINGS = {
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.ssh.program": "ssh-keygen",
    "gpg.x509.program": "false",
    "gpg.minTrustLevel": "undefined",
    "log.showSignature": "false",
}
_HINT = "have it signed by one of those whom --require-signed names, in a new commit on top"
_SECONDS = 60
_GOOD = "G"
_WRONG = {
    "N": "is not signed",
    "B": "has a signature that is not its own",
    "U": "is signed by the key {}, which is not among those that were named",
    "E": "is signed by the key {}, which is not among those that were named",
    "X": "has a signature of the key {} that has expired",
    "Y": "is signed by the key {}, which has expired",
    "R": "is signed by the key {}, which was revoked",
}


def signer(repository: Repository, commit: str, files: Sequence[Path]) -> str:
    """Who signed a commit; raises RefusedError unless it was somebody whom one of the files names.

    Each file is one of ssh's allowed signers, or holds exported OpenPGP keys.
    """
    with TemporaryDirectory(prefix="gpubudget-keys-") as home:
        allowed = _gather(Path(home), files)
        settings = {**_SETTINGS, "gpg.ssh.allowedSignersFile": str(allowed)}
        letter, who, key = repository.signature(commit, settings, {"GNUPGHOME": home})
    if letter != _GOOD:
        raise RefusedError(f"commit {commit} {_WRONG.get(letter, _WRONG['B']).format(printable(key))}", hint=_HINT)
    return f"{printable(who, 200)} ({printable(key)})"


def _gather(home: Path, files: Sequence[Path]) -> Path:
    """Fills a home for gpg with the OpenPGP keys of the files, and one file with the lines of all others."""
    (home / "gpg.conf").write_text("no-autostart\ntrust-model always\n", encoding="ascii")  # they were named: trusted
    allowed = home / "allowed_signers"
    lines: list[bytes] = []
    for file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise GpuBudgetError(f"the signers in {file} cannot be read: {error.strerror}", hint=_HINT) from error
        if _ARMOUR in data or data[:1] >= b"\x80":
            _import(home, file, data)
        else:
            lines.append(data)
    allowed.write_bytes(b"\n".join(lines) + b"\n")
    return allowed


def _import(home: Path, file: Path, data: bytes) -> None:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--import"]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise GpuBudgetError(f"{file} holds OpenPGP keys, and gpg is not installed", hint="install gnupg") from error
    if done.returncode:
        raise GpuBudgetError(f"the OpenPGP keys in {file} cannot be read", hint="export them anew: gpg --export KEY")
