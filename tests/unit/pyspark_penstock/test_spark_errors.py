"""Errors of this package are PySpark's, and cross process boundaries."""

import importlib
import pickle
import pkgutil

import pytest
from pyspark.errors import PySparkException

import pyspark_penstock
from pyspark_penstock.errors import PenstockError, PenstockRuntimeError, WrongOption

INTERNAL = {"Misfit", "Unfit", "_TooLate", "PartlyWritten"}
"""Caught where they are raised, or warnings."""


def exception_classes() -> list[type[Exception]]:
    found: dict[str, type[Exception]] = {}
    for module in pkgutil.walk_packages(pyspark_penstock.__path__, "pyspark_penstock."):
        for value in vars(importlib.import_module(module.name)).values():
            own = isinstance(value, type) and value.__module__ == module.name
            if own and issubclass(value, Exception) and value.__name__ not in INTERNAL:
                found[value.__name__] = value
    return list(found.values())


@pytest.mark.parametrize("kind", exception_classes(), ids=lambda kind: kind.__name__)
def test_an_error_is_one_of_pyspark_and_survives_pickling(kind: type[Exception]) -> None:
    error = kind("the topic orders has no partition 7")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(error, PySparkException)
    assert type(again) is kind
    assert str(again) == str(error) == "the topic orders has no partition 7"


def test_a_refused_option_is_a_value_error_with_a_condition() -> None:
    error = WrongOption("maxOffsetsPerTrigger must be positive")
    assert isinstance(error, ValueError)
    assert isinstance(error, PenstockError)
    assert error.getCondition() == "PENSTOCK_WRONG_OPTION"
    assert error.getMessage() == "[PENSTOCK_WRONG_OPTION] maxOffsetsPerTrigger must be positive"
    assert error.getSqlState() is None


def test_an_error_whose_message_is_given_by_name_keeps_it() -> None:
    error = pickle.loads(pickle.dumps(PenstockRuntimeError(message="no broker answers")))
    assert str(error) == "no broker answers"
    assert error.args == ("no broker answers",)


def test_a_pickled_error_does_not_carry_the_catalog_of_pyspark() -> None:
    assert len(pickle.dumps(WrongOption("short"))) < 200
