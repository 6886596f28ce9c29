"""Build of the native part: one extension per idea, each with the csrc files it needs.

Environment switches, for development only:
    ROCKETSTORE_SANITIZE=address,undefined   compile and link with these sanitizers
    ROCKETSTORE_COVERAGE=1                   gcov counters in C and Cython line tracing
    ROCKETSTORE_DEBUG=1                      -O0 -g and assertions
    ROCKETSTORE_DEVELOP=1                    warnings of csrc are errors
    ROCKETSTORE_ONLY=codec,scanner           build only these extensions; none: no extension
    ROCKETSTORE_JOBS=2                       translate that many .pyx files at once
"""

from __future__ import annotations

import copy
import os
import pathlib
import subprocess

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Extension name -> files of csrc that are compiled into it. csrc has no writable data, so a file
# may be in several extensions.
EXTENSIONS: dict[str, list[str]] = {
    "syscalls": [],
    "status": [],
    "waiting": [],
    "wait_line": [],
    "durations": [],
    "positions": [],
    "guard": [],
    "mapping": [],
    "mapped_file": [],
    "populating": [],
    "prewriting": [],
    "codec": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_message_id"],
    "checkpoint": ["rs_checkpoint", "rs_crc32"],
    "put_result": ["rs_message_id"],
    "queue_state": [],
    "file_writes": [],
    "group_commit": [],
    "turn": [],
    "write_through": ["rs_crc32", "rs_crc32_clmul", "rs_record", "rs_log_file"],
    "appender": ["rs_crc32", "rs_crc32_clmul", "rs_record", "rs_log_file"],
    "property_text": [],
    "bodies": [],
    "writer": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_log_file"],
    "full_message": [],
    "completion_port": [],
    "row_texts": ["rs_properties"],
    "rows": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_log_file"],
    "message_columns": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record"],
    "frames": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_log_file"],
    "ring": [],
    "message": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_message_id"],
    "scanner": ["rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_scan"],
    "unit_reader": [
        "rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_scan", "rs_unit_reader",
    ],
    "column_texts": [
        "rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_message_id",
        "rs_scan", "rs_columns", "rs_dictionary",
    ],
    "columns": [
        "rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record", "rs_message_id",
        "rs_scan", "rs_columns", "rs_dictionary",
    ],
    "queue_file": ["rs_queue_file"],
    "index_file": ["rs_index_file", "rs_properties"],
    "dispatcher": [
        "rs_crc32", "rs_crc32_clmul", "rs_properties", "rs_record",
        "rs_queue_file", "rs_queue_table", "rs_index_file", "rs_dispatch",
    ],
    "dispatch_service": [],
}  # fmt: skip

HERE = pathlib.Path(__file__).parent
COMPILE = ["-std=gnu17", "-fvisibility=hidden", "-fno-strict-aliasing", "-fstack-protector-strong"]
# GCC clears constant sizes above 128 bytes by `rep stos`, which takes as long to begin as a Message takes to be
# made otherwise (reading 100 B: 91 -> 80 ns a message without it). Other compilers do not know the flag.
CLEAR_INLINE = "-mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only", "-Icsrc"]


class BuildExtensions(build_ext):
    """Gives each extension its own directory for objects: extensions share files of csrc, and two
    that are built at once (`--parallel`) must not write the same object."""

    def build_extensions(self) -> None:
        if "-O3" in flags()[0] and self.accepts(CLEAR_INLINE):
            for extension in self.extensions:
                extension.extra_compile_args = [*extension.extra_compile_args, CLEAR_INLINE]
        build_ext.build_extensions(self)

    def accepts(self, flag: str) -> bool:
        """Whether the compiler knows a flag; what it says if not is not shown."""
        try:
            command = [*self.compiler.compiler_so[:1], "-Werror", flag, "-E", "-x", "c", os.devnull]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def build_extension(self, extension: Extension) -> None:
        if switch("DEVELOP"):
            for source in (s for s in extension.sources if s.startswith("csrc/")):
                self.compiler.spawn([*self.compiler.compiler_so[:1], *COMPILE, *WARNINGS, source])
        alone = copy.copy(self)
        alone.build_temp = os.path.join(self.build_temp, extension.name)
        build_ext.build_extension(alone, extension)


def switch(name: str) -> str:
    return os.environ.get(f"ROCKETSTORE_{name}", "").strip()


def flags() -> tuple[list[str], list[str]]:
    """Compile and link flags for the switches in force."""
    compile_flags, link_flags = list(COMPILE), []
    if switch("DEBUG"):
        compile_flags += ["-O0", "-g"]
    elif switch("SANITIZE"):
        compile_flags += ["-O1", "-g"]
    else:
        compile_flags += ["-O3", "-g1", "-DNDEBUG"]
    if switch("SANITIZE"):
        sanitize = [f"-fsanitize={switch('SANITIZE')}", "-fno-omit-frame-pointer"]
        compile_flags += sanitize
        link_flags += sanitize
    if switch("COVERAGE"):
        compile_flags += ["--coverage", "-DCYTHON_TRACE_NOGIL=1"]
        link_flags += ["--coverage"]
    return compile_flags, link_flags


def extensions() -> list[Extension]:
    only = [name for name in switch("ONLY").split(",") if name]
    compile_flags, link_flags = flags()
    headers = [
        str(path.relative_to(HERE))
        for folder in ("csrc", "rocketstore/_native")
        for path in sorted((HERE / folder).glob("*.h"))
    ]
    return [
        Extension(
            f"rocketstore._native.{name}",
            sources=[f"rocketstore/_native/{name}.pyx", *(f"csrc/{c}.c" for c in sources)],
            include_dirs=["csrc", "rocketstore/_native", numpy.get_include()],
            depends=[*headers, "setup.py"],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
        for name, sources in EXTENSIONS.items()
        if (not only or name in only) and (HERE / f"rocketstore/_native/{name}.pyx").exists()
    ]


if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": BuildExtensions},
        ext_modules=cythonize(
            extensions(),
            build_dir=os.path.join("build", "cython"),
            nthreads=int(switch("JOBS") or 0),
            language_level=3,
            compiler_directives={
                "embedsignature": True,
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "freethreading_compatible": True,
                "linetrace": bool(switch("COVERAGE")),
            },
        ),
    )
