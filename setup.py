"""Build the record loops with Cython where a compiler is found.

The same ``.py`` files run uncompiled, so a failed build is a slower broker and not a failed install.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Modules worth compiling: loops that touch every record, and the codec of every request.
COMPILED: tuple[str, ...] = ("penstock.wire.record_loops",)


class OptionalBuild(build_ext):
    """Compile what can be compiled and go on without the rest."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            self.warn(f"{ext.name} stays pure Python: {error}")


def extensions() -> list[Extension]:
    if os.environ.get("PENSTOCK_PURE"):
        return []
    modules = [name for name in COMPILED if Path("src", *name.split(".")).with_suffix(".py").exists()]
    if not modules:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    built = [Extension(name, [f"src/{name.replace('.', '/')}.py"], optional=True) for name in modules]
    return cythonize(built, language_level=3, build_dir="build/cython", compiler_directives={"embedsignature": True})


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
