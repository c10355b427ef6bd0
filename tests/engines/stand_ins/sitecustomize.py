# mypy: ignore-errors
"""Lets SGLang start without a GPU: stands in for packages that exist only for GPUs and are imported but never used.

Python imports this module at its start when its folder is on PYTHONPATH. Nothing of SGLang is changed: its scheduler,
cache, watchdog, server and model code run as they are; the attention and sampling are torch's own.
"""

import enum
import importlib.abc
import importlib.machinery
import sys
import types

ABSENT = ("torchvision", "sgl_kernel")
ENUMERATIONS = {
    "InterpolationMode": ("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS"),
    "ImageReadMode": ("UNCHANGED", "GRAY", "GRAY_ALPHA", "RGB", "RGB_ALPHA"),
}


class Missing:
    """A function of an absent package: may be looked up and decorated with, refuses to be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")

    def __call__(self, *given: object, **named: object) -> object:
        raise RuntimeError(f"{self.__name__} exists on GPUs only")


class Absent(types.ModuleType):
    """A module whose every name exists: classes for capitalised names, functions otherwise."""

    __version__ = "99"
    __path__: list[str] = []
    __all__: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ENUMERATIONS:
            made: object = enum.Enum(name, {word: word.lower() for word in ENUMERATIONS[name]})
        elif name[0].isupper():
            made = type(name, (), {})
        else:
            made = Missing(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in the search: an installed package of the same name would win."""

    def find_spec(self, fullname, path=None, target=None):
        """A module of an absent package, at any depth."""
        if fullname.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The stand-in."""
        return Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(Finder())

import engine_faults  # noqa: E402  (installed beside SGLang)

engine_faults.register_sglang()
