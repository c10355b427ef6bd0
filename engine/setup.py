"""Builds the C++ core twice: the library that serves, and the one that can inject faults."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
SOURCES = sorted(str(path.relative_to(HERE)) for path in (HERE / "rowstore").glob("*.cpp"))
FLAGS = ["-std=c++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"]
COMPILE_JOBS_MAX = 2


def depends_on_macros(source: str) -> bool:
    """Whether the two libraries differ in this file; the others are compiled once for both."""
    text = (HERE / source).read_text()
    return '"inject.h"' in text or "RS_INJECT" in text


class BuildCore(build_ext):
    """A plain shared library with a C ABI, so no Python headers and no extension suffix."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.compiled: set[Path] = set()

    def get_ext_filename(self, fullname: str) -> str:
        *package, library = fullname.split(".")
        return str(Path(*package) / f"lib{library}.so")

    def build_extension(self, ext: Extension) -> None:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise SystemExit(f"no C++ compiler '{compiler}': install g++ 12 or newer, or set CXX")
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        shared = Path(self.build_temp).resolve() / "both"
        own = Path(self.build_temp).resolve() / ext.name
        for folder in (target.parent, shared, own):
            folder.mkdir(parents=True, exist_ok=True)
        defines = [f"-D{name}" for name, _ in ext.define_macros]

        def compile_one(source: str) -> str:
            common = not depends_on_macros(source)
            output = (shared if common else own) / (Path(source).stem + ".o")
            if common and output in self.compiled:
                return str(output)
            command = [compiler, *FLAGS, *defines, "-c", str(HERE / source), "-o", str(output)]
            subprocess.run(command, check=True)
            self.compiled.add(output)
            return str(output)

        with ThreadPoolExecutor(COMPILE_JOBS_MAX) as workers:
            objects = list(workers.map(compile_one, ext.sources))
        subprocess.run([compiler, "-shared", "-pthread", *objects, "-o", str(target)], check=True)


setup(
    ext_modules=[
        Extension("sentinel_engine.rowstore.rowstore", SOURCES),
        Extension(
            "sentinel_engine.rowstore.rowstore_inject",
            SOURCES,
            define_macros=[("RS_INJECT", None)],
        ),
    ],
    cmdclass={"build_ext": BuildCore},
)
