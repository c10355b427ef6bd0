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


class BuildCore(build_ext):
    """A plain shared library with a C ABI, so no Python headers and no extension suffix."""

    def get_ext_filename(self, fullname: str) -> str:
        *package, library = fullname.split(".")
        return str(Path(*package) / f"lib{library}.so")

    def build_extension(self, ext: Extension) -> None:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise SystemExit(f"no C++ compiler '{compiler}': install g++ 12 or newer, or set CXX")
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        objects_dir = Path(self.build_temp).resolve() / ext.name
        for folder in (target.parent, objects_dir):
            folder.mkdir(parents=True, exist_ok=True)
        defines = [f"-D{name}" for name, _ in ext.define_macros]

        def compile_one(source: str) -> str:
            output = str(objects_dir / (Path(source).stem + ".o"))
            command = [compiler, *FLAGS, *defines, "-c", str(HERE / source), "-o", output]
            subprocess.run(command, check=True)
            return output

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
