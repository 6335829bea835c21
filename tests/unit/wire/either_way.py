"""The modules that can be compiled, each as installed and from its source."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock.wire

WIRE = Path(penstock.wire.__file__).parent


def from_source(name: str) -> ModuleType:
    """``penstock.wire.<name>`` run from its .py under another name, even if a compiled one would be imported."""
    alias = f"penstock_source_{name}"
    spec = importlib.util.spec_from_file_location(alias, WIRE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    spec.loader.exec_module(module)
    return module


def both(name: str) -> Any:
    """A parameter list: the module as installed, and from its source."""
    installed = importlib.import_module(f"penstock.wire.{name}")
    return [pytest.param(installed, id="installed"), pytest.param(from_source(name), id="source")]
