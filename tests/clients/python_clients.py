"""Clients from PyPI, each installed by its lock in `requirements` into a folder under `.cache`.

Toad needs a newer Python than most machines have; where there is none, and Debian's packages can
be had, the one of Debian's next release is unpacked into such a folder too, and runs from there
with its own C library. Nothing is installed in the system.
"""

import os
from pathlib import Path
import shutil
import subprocess
import sys

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
NEWER = "3.14"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT = """\
Dir::State "{0}";
Dir::State::status "{0}/status";
Dir::Cache "{0}";
Dir::Etc::SourceList "{0}/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Install-Recommends "0";
APT::Sandbox::User "root";
"""
INSTALL_S = 300


class UnavailableError(Exception):
    """Why a client cannot be had here."""


def packages(name: str, *options: str) -> Path:
    """The folder with what `requirements/NAME.lock` says; `options` are pip's."""
    lock, target = ROOT / f"requirements/{name}.lock", CACHE / name
    marker = target / "installed.lock"
    if not marker.exists() or marker.read_bytes() != lock.read_bytes():
        shutil.rmtree(target, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        exact = ("--only-binary=:all:", "--require-hashes", "--requirement", str(lock))
        _run(*pip, "--target", str(target), *exact, *options)
        shutil.copy(lock, marker)
    return target


def toad() -> list[str]:
    """The command line of Toad."""
    python = newer_python()
    # Older pips look at their own Python all the same.
    modules = packages("toad", "--python-version", NEWER, "--ignore-requires-python")
    start = f"import sys; sys.path.insert(0, {str(modules)!r}); import toad.cli; toad.cli.main()"
    return [*python, "-c", start]


def newer_python() -> list[str]:
    """The command line of the machine's own Python of that version, or of Debian's."""
    if (program := shutil.which(f"python{NEWER}")) is not None:
        return [program]
    folder = CACHE / f"python{NEWER}"
    marker = folder / "unpacked"
    if not marker.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _unpack_from_debian(folder)
        marker.touch()
    [loader] = folder.glob("usr/lib/*-linux-gnu/ld-linux*.so.?")
    return [str(loader), "--library-path", str(loader.parent), f"{folder}/usr/bin/python{NEWER}"]


def _unpack_from_debian(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise UnavailableError(f"there is no Python {NEWER}, and none from Debian, on this machine")
    wanted = ("indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    mirrors = [
        uri for uri in _run("apt-get", *wanted).split() if uri.rstrip("/").endswith("debian")
    ]
    if not mirrors:
        raise UnavailableError(f"there is no Python {NEWER}, and no mirror of Debian, here")
    state = folder / "apt"
    for part in ("lists/partial", "archives/partial"):
        (state / part).mkdir(parents=True)
    trust = f"[signed-by={KEYS}] " if KEYS.exists() else ""
    (state / "sources.list").write_text(f"deb {trust}{mirrors[0]} testing main\n", encoding="utf-8")
    (state / "status").touch()
    (state / "apt.conf").write_text(APT.format(state), encoding="utf-8")
    config = str(state / "apt.conf")
    _run("apt-get", "update", APT_CONFIG=config)
    download = ("install", "--yes", "--download-only", f"python{NEWER}")
    _run("apt-get", *download, APT_CONFIG=config)
    for package in (state / "archives").glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), str(folder))
    shutil.rmtree(state)


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=INSTALL_S,
    )
    if done.returncode != 0:
        why = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise UnavailableError(f"{command[0]} failed: {why}")
    return done.stdout
