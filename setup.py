"""Build of the native part: one shared object for each folder of rocketstore/_native, with all its modules.

Every .pyx is translated and every .c compiled once, by all processors, into build/native; what is older than
its sources, or was made with other flags, is made again. `rocketstore/_native/__init__.py` says how a module
is found in the shared object of its folder.

Environment switches, for development only:
    ROCKETSTORE_SANITIZE=address,undefined   compile and link with these sanitizers
    ROCKETSTORE_COVERAGE=1                   gcov counters in C and Cython line tracing
    ROCKETSTORE_DEBUG=1                      -O0 -g and assertions
    ROCKETSTORE_SYMBOLS=1                    line numbers in release code, for perf and gdb
    ROCKETSTORE_DEVELOP=1                    warnings of csrc are errors
    ROCKETSTORE_ONLY=none                    no native code: the shared objects of the tree are used
    ROCKETSTORE_JOBS=2                       that many processors; without it all
"""

from __future__ import annotations

import gc
import hashlib
import os
import pathlib
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

#: Folders of rocketstore/_native, low to high.
GROUPS = ("os", "format", "sync", "append", "put", "dispatch")
#: Modules that a message passes one by one; the others are as good, and compiled in half the time, by -O1.
HOT_NAMES = """
    os.syscalls os.sigbus_guard os.mapping os.mapped_file os.durable_write
    format.codec format.message format.scanner format.queue_reader format.string_columns format.column_scanner
    sync.futex sync.wait_queue sync.signal_safe_lock sync.durations sync.positions sync.queue_positions
    append.appender append.guest_line append.elsewhere append.raw_append append.group_commit append.put_result
    append.direct_write append.page_populator
    put.writer put.body_buffers put.property_builder put.put_message put.batch_append put.string_rows
    put.put_columns put.frames put.host_puts put.host_line put.completion_port
    dispatch.dispatch_loop dispatch.dispatch_service dispatch.unique_claims dispatch.unit_look
"""
HOT = frozenset(HOT_NAMES.split())
#: Made by Cython: memoryviews and other helpers, once for all modules.
SHARED = "os._cython_shared"

HERE = pathlib.Path(__file__).parent
COMPILE = ["-std=gnu17", "-fvisibility=hidden", "-fno-strict-aliasing", "-fstack-protector-strong"]
# GCC clears constant sizes above 128 bytes by `rep stos`, which takes as long to begin as a Message takes to be
# made otherwise (reading 100 B: 91 -> 80 ns a message without it). Other compilers do not know the flag.
CLEAR_INLINE = "-mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign"
# GCC keeps the function that reads the arguments of a put apart from the put for the size of their stack frame:
# 40 instructions a put.
ONE_FRAME = "--param=large-stack-frame-growth=10000"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
DIRECTIVES = {
    "embedsignature": True,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "freethreading_compatible": True,
}


def switch(name: str) -> str:
    return os.environ.get(f"ROCKETSTORE_{name}", "").strip()


def jobs() -> int:
    return int(switch("JOBS") or len(os.sched_getaffinity(0)))


def module_names(group: str) -> list[str]:
    """`group.module` of each module of a folder."""
    folder = HERE / "rocketstore" / "_native" / group
    return [f"{group}.{path.stem}" for path in sorted(folder.glob("*.pyx"))]


def source_of(name: str) -> str:
    return f"rocketstore/_native/{name.replace('.', '/')}.pyx"


def flags(hot: bool) -> list[str]:
    """Compile flags for the switches in force."""
    found = list(COMPILE)
    if switch("DEBUG"):
        found += ["-O0", "-g"]
    elif switch("SANITIZE"):
        found += ["-O1", "-g", "-UNDEBUG"]
    else:
        found += ["-O3" if hot else "-O1", "-g1" if switch("SYMBOLS") else "-g0", "-DNDEBUG"]
    if switch("SANITIZE"):
        found += [f"-fsanitize={switch('SANITIZE')}", "-fno-omit-frame-pointer"]
    if switch("COVERAGE"):
        found += ["--coverage", "-DCYTHON_TRACE_NOGIL=1"]
    return found


def link_flags() -> list[str]:
    found = [f"-fsanitize={switch('SANITIZE')}"] if switch("SANITIZE") else []
    return [*found, "--coverage"] if switch("COVERAGE") else found


@dataclass(frozen=True)
class Unit:
    """One compilation."""

    source: str
    object: str
    command: list[str]

    def make(self) -> None:
        """Compiles unless the object is newer than all that it was made of, which the compiler has noted."""
        note = f"{self.object}.d"
        if self._is_new(note):
            return
        os.makedirs(os.path.dirname(self.object), exist_ok=True)
        # Under another name first: a build that is stopped leaves no half object.
        part = f"{self.object}.part"
        written = ["-MMD", "-MF", note, "-c", self.source, "-o", part]
        done = subprocess.run(
            [*self.command, *written], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join([*self.command, *written])}\n{done.stdout}{done.stderr}")
        os.replace(part, self.object)

    def _is_new(self, note: str) -> bool:
        try:
            made = os.stat(self.object).st_mtime_ns
            parts = pathlib.Path(note).read_text().partition(":")[2].replace("\\\n", " ").split()
            return all(os.stat(part).st_mtime_ns < made for part in parts)
        except OSError:
            return False


class BuildNative(build_ext):
    """Translates and compiles everything in parallel, then links a shared object for each folder."""

    def build_extensions(self) -> None:
        if not self.extensions:
            return
        units = self._units(self._translated())
        with ThreadPoolExecutor(jobs()) as pool:
            # The largest first: the last one to finish decides how long it takes.
            order = sorted(
                (unit for group in units.values() for unit in group),
                key=lambda unit: -os.stat(unit.source).st_size,
            )
            list(pool.map(Unit.make, order))
            library = self._library([unit.object for unit in units.pop("csrc")])
            list(pool.map(lambda group: self._link(group, units[group], library), units))

    def _translated(self) -> dict[str, str]:
        """`group.module` -> its C file, written where it was older than what it is made of."""
        from Cython import __version__
        from Cython.Build import cythonize

        # Cython makes many objects that live as long as its process: a third of its time went into counting them.
        gc.set_threshold(1_000_000, 20, 20)
        directives = {**DIRECTIVES, "linetrace": bool(switch("COVERAGE"))}
        key = hashlib.sha256(repr(sorted(directives.items())).encode()).hexdigest()[:8]
        folder = os.path.join("build", f"cython-{__version__}-{key}")
        names = [name for group in GROUPS for name in module_names(group)]
        shared = os.path.join(folder, "rocketstore", "_native", *SHARED.split(".")) + ".c"
        modules = [Extension(f"rocketstore._native.{name}", [source_of(name)]) for name in names]
        made = cythonize(
            [*modules, Extension(f"rocketstore._native.{SHARED}", [shared])],
            build_dir=folder,
            nthreads=jobs(),
            language_level=3,
            shared_utility_qualified_name=f"rocketstore._native.{SHARED}",
            compiler_directives=directives,
            quiet=True,
        )
        return {one.name.removeprefix("rocketstore._native."): one.sources[0] for one in made}

    def _units(self, translated: dict[str, str]) -> dict[str, list[Unit]]:
        """What there is to compile, by folder."""
        optimized = "-O3" in flags(True)
        inline = [CLEAR_INLINE] if optimized and self._accepts(CLEAR_INLINE) else []
        one_frame = [ONE_FRAME] if optimized and self._accepts(ONE_FRAME) else []
        units: dict[str, list[Unit]] = {group: [] for group in GROUPS}
        for name, source in translated.items():
            group, _, module = name.partition(".")
            include = ["-Icsrc", f"-Irocketstore/_native/{group}"]
            include += [f"-I{path}" for path in self.compiler.include_dirs]
            hot = name in HOT
            chosen = [*flags(hot), *(inline if hot else []), *(one_frame if group == "put" else [])]
            units[group].append(self._unit(source, f"{group}/{module}", [*chosen, *include]))
        warnings = WARNINGS if switch("DEVELOP") else []
        units["csrc"] = [
            self._unit(f"csrc/{path.name}", f"csrc/{path.stem}", [*flags(True), *inline, *warnings])
            for path in sorted((HERE / "csrc").glob("*.c"))
        ]
        return units

    def _unit(self, source: str, name: str, arguments: list[str]) -> Unit:
        command = [*self.compiler.compiler_so, *arguments]
        key = hashlib.sha256("\0".join(command).encode()).hexdigest()[:12]
        return Unit(source, os.path.join("build", "native", f"{name}-{key}.o"), command)

    def _library(self, objects: list[str]) -> str:
        """All of csrc; a shared object takes what it calls."""
        key = hashlib.sha256("\0".join(objects).encode()).hexdigest()[:12]
        self.compiler.create_static_lib(objects, f"csrc-{key}", os.path.join("build", "native"))
        return os.path.join("build", "native", f"libcsrc-{key}.a")

    def _link(self, group: str, units: list[Unit], library: str) -> None:
        path = self.get_ext_fullpath(f"rocketstore._native.{group}._modules")
        inputs = [*(unit.object for unit in units), library]
        self.compiler.link_shared_object(inputs, path, extra_postargs=link_flags())

    def _accepts(self, flag: str) -> bool:
        """Whether the compiler knows a flag; what it says if not is not shown."""
        try:
            command = [*self.compiler.compiler_so[:1], "-Werror", flag, "-E", "-x", "c", os.devnull]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def extensions() -> list[Extension]:
    if switch("ONLY") == "none":
        return []
    return [
        Extension(
            f"rocketstore._native.{group}._modules", [source_of(n) for n in module_names(group)]
        )
        for group in GROUPS
    ]


if __name__ == "__main__":
    setup(cmdclass={"build_ext": BuildNative}, ext_modules=extensions())
