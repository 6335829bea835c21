"""Build the record loops with Cython where a compiler is found.

The same ``.py`` files run uncompiled, so a failed build is a slower broker and not a failed install.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Modules worth compiling: loops that touch every record, and the codec of every request. They call each other as C, so
# that they are compiled all or none. Connections, dispatch, partitions and logs were tried, untyped as they are: the
# broker then answered small requests more slowly than with the interpreter.
COMPILED: tuple[str, ...] = (
    "penstock.wire.column_batches",
    "penstock.wire.commit",
    "penstock.wire.fetch",
    "penstock.wire.frame",
    "penstock.wire.json_columns",
    "penstock.wire.primitives",
    "penstock.wire.produce",
    "penstock.wire.record_blobs",
    "penstock.wire.record_loops",
)


class OptionalBuild(build_ext):
    """Compile everything, or go on without."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:
            self.warn(f"the broker stays pure Python: {error}")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


def extensions() -> list[Extension]:
    if os.environ.get("PENSTOCK_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    built = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=["-O2", "-g0"]) for name in COMPILED
    ]
    return cythonize(
        built,
        language_level=3,
        build_dir="build/cython",
        include_path=["src"],
        nthreads=os.cpu_count() or 1,
        compiler_directives={"embedsignature": True},
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
