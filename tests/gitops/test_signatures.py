"""Signatures of commits: real keys, real signatures, and everything that is none of one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubudget.errors import GpuBudgetError, RefusedError
from gpubudget.gitops.gitprocess import RepositoryError
from gpubudget.gitops.repository import open_repository
from gpubudget.gitops.signatures import signer
from gpubudget.gitops.source import parse_source
from tests.conftest import GitRepo

Sign = Callable[..., str]


@pytest.fixture
def repo(git_repo: Callable[[str], GitRepo]) -> GitRepo:
    return git_repo("work")


def ssh_key(folder: Path, name: str) -> Path:
    """A new key pair; the private half's path."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder / name


def allowed(folder: Path, who: str, key: Path) -> Path:
    """A file of allowed signers with one line."""
    file = folder / f"allowed-{key.name}"
    file.write_text(f"# who may\n{who} {key.with_suffix('.pub').read_text()}")
    return file


def ssh_signed(repo: GitRepo, key: Path) -> str:
    settings = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}")
    repo.git(*settings, "commit", "--quiet", "--gpg-sign", "--allow-empty", "--message", "signed")
    return repo.git("rev-parse", "HEAD")


def signed_by(place: str | Path, commit: str, tmp_path: Path, *files: Path) -> str:
    with open_repository(parse_source(str(place)), tmp_path / "mirror.git") as opened:
        opened.fetch("main")
        return signer(opened, commit, files)


def refusal(place: str | Path, commit: str, tmp_path: Path, *files: Path) -> str:
    with pytest.raises(RefusedError) as caught:
        signed_by(place, commit, tmp_path, *files)
    assert "--require-signed" in caught.value.hint
    return caught.value.message.replace(commit, "COMMIT")


@pytest.mark.parametrize("remote", [False, True], ids=["path", "url"])
def test_a_commit_signed_with_an_allowed_ssh_key_names_its_signer(repo: GitRepo, tmp_path: Path, remote: bool) -> None:  # noqa: FBT001
    """The principal of the list and the key's fingerprint, in a folder and in a mirror."""
    key = ssh_key(tmp_path, "hanna")
    commit = ssh_signed(repo, key)
    place = repo.url if remote else repo.path
    found = signed_by(place, commit, tmp_path, allowed(tmp_path, "hanna@example.org", key))
    assert found.startswith("hanna@example.org (SHA256:")


def test_commits_without_the_right_signature_are_refused(repo: GitRepo, tmp_path: Path) -> None:
    """Unsigned, signed by somebody else, signed by nobody who is known: each has its sentence."""
    mine, other = ssh_key(tmp_path, "mine"), ssh_key(tmp_path, "other")
    unsigned = repo.commit({})
    assert refusal(repo.path, unsigned, tmp_path, allowed(tmp_path, "a@b", mine)) == "commit COMMIT is not signed"
    commit = ssh_signed(repo, other)
    said = refusal(repo.path, commit, tmp_path, allowed(tmp_path, "a@b", mine))
    assert said.startswith("commit COMMIT is signed by the key SHA256:")
    assert said.endswith("which is not among those that were named")
    (tmp_path / "empty").write_text("")
    assert "which is not among" in refusal(repo.path, commit, tmp_path, tmp_path / "empty")


def test_a_signature_that_was_moved_to_another_commit_is_refused(repo: GitRepo, tmp_path: Path) -> None:
    """The signature must be over this very commit."""
    key = ssh_key(tmp_path, "hanna")
    text = repo.git("cat-file", "commit", ssh_signed(repo, key)) + "\n"
    forged = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.replace("signed", "forged").encode())
    repo.git("update-ref", "refs/heads/main", forged)
    assert "has a signature that is not its own" in refusal(repo.path, forged, tmp_path, allowed(tmp_path, "a@b", key))


def test_an_ssh_key_whose_time_is_over_is_refused(repo: GitRepo, tmp_path: Path) -> None:
    """The list's own dates count, at the time of the commit."""
    key = ssh_key(tmp_path, "hanna")
    commit = ssh_signed(repo, key)
    file = tmp_path / "signers"
    file.write_text(f'a@b valid-before="20200101" {key.with_suffix(".pub").read_text()}')
    refusal(repo.path, commit, tmp_path, file)


@pytest.fixture
def gpg(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of gpg with two keys, and their public halves beside it; its agent is gone afterwards."""
    folder = tmp_path_factory.mktemp("g")
    home = folder / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    command = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key"]
    for name in ("hanna", "kenji"):
        subprocess.run([*command, f"{name} <{name}@example.org>", "ed25519", "sign", "never"], check=True)
        for suffix, armour in ((".asc", ["--armor"]), (".gpg", [])):
            export = subprocess.run(["gpg", *armour, "--export", name], check=True, capture_output=True)
            (folder / (name + suffix)).write_bytes(export.stdout)
    yield folder
    subprocess.run(["gpgconf", "--kill", "all"], check=True)


def test_openpgp_keys_are_taken_from_the_files_alone(repo: GitRepo, tmp_path: Path, gpg: Path) -> None:
    """Armoured or not, together with ssh's; a key that only the user's own home has does not count."""
    key = ssh_key(tmp_path, "other")
    repo.git("-c", "user.signingkey=hanna", "commit", "--quiet", "-S", "--allow-empty", "--message", "signed")
    commit = repo.git("rev-parse", "HEAD")
    for suffix in (".asc", ".gpg"):
        files = (allowed(tmp_path, "a@b", key), gpg / f"hanna{suffix}")
        assert signed_by(repo.path, commit, tmp_path, *files).startswith("hanna <hanna@example.org> (")
    assert "which is not among" in refusal(repo.path, commit, tmp_path, gpg / "kenji.asc")
    running = [_words(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [words for words in running if b"gpg-agent" in words and b"gpubudget-keys-" in words]


def _words(path: Path) -> bytes:
    """The command line of a process that may have ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_keys_that_cannot_be_read_are_one_clear_sentence(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing file, damaged keys, and a machine without gpg."""
    commit = repo.commit({})
    broken = tmp_path / "broken.asc"
    broken.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\nnonsense\n")
    with pytest.raises(GpuBudgetError, match="cannot be read: No such file"):
        signed_by(repo.path, commit, tmp_path, tmp_path / "missing")
    with pytest.raises(GpuBudgetError, match=r"the OpenPGP keys in .*broken.asc cannot be read"):
        signed_by(repo.path, commit, tmp_path, broken)
    programs = tmp_path / "bin"
    programs.mkdir()
    git = next(Path(p) / "git" for p in os.environ["PATH"].split(":") if (Path(p) / "git").exists())
    (programs / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(GpuBudgetError, match="gpg is not installed"):
        signed_by(repo.path, commit, tmp_path, broken)


def test_a_commit_that_is_not_there_cannot_be_checked(repo: GitRepo, tmp_path: Path) -> None:
    """It is not called unsigned."""
    repo.commit({})
    (tmp_path / "empty").write_text("")
    with pytest.raises(RepositoryError, match="cannot check the signature"):
        signed_by(repo.path, "0" * 40, tmp_path, tmp_path / "empty")


def test_programs_of_the_repositorys_own_configuration_do_not_judge(repo: GitRepo, tmp_path: Path) -> None:
    """A repository cannot name a verifier that says yes to everything."""
    yes = tmp_path / "yes"
    yes.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 0\n")
    yes.chmod(0o755)
    mine, other = ssh_key(tmp_path, "mine"), ssh_key(tmp_path, "other")
    commit = ssh_signed(repo, other)
    for name in ("gpg.program", "gpg.ssh.program", "gpg.openpgp.program"):
        repo.git("config", name, str(yes))
    repo.git("config", "gpg.ssh.allowedSignersFile", str(allowed(tmp_path, "evil@b", other)))
    repo.git("config", "log.showSignature", "true")
    assert "which is not among" in refusal(repo.path, commit, tmp_path, allowed(tmp_path, "a@b", mine))
    assert not (tmp_path / "ran").exists()
