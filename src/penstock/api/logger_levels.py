"""The levels of a broker's loggers as settings of the resource BROKER_LOGGER, until the broker stops.

Kafka's ConfigCommand calls the resource `broker-loggers`. The loggers are the broker's components as named in its log,
and `root` for all that have no level of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.controller.configs import ConfigChange, SettingStep, Step, check_steps, node_id
from penstock.model.generated_errors import InvalidConfig, InvalidRequest
from penstock.observe.log import LEVEL_NUMBERS, ROOT, Levels
from penstock.wire.api.describe_configs import DescribeConfigsResourceResult

SOURCE_LOGGER = 6
KIND_UNKNOWN = 0


class LoggerLevels:
    """Describes and changes levels, with Kafka's checks and messages."""

    def __init__(self, levels: Levels, broker_id: Callable[[], int]) -> None:
        self._levels = levels
        self._broker_id = broker_id

    def described(self, names: Iterable[str] | None) -> list[DescribeConfigsResourceResult]:
        levels = self._levels.names()
        wanted = levels if names is None else [name for name in names if name in levels]
        return [
            DescribeConfigsResourceResult(
                name=name,
                value=levels[name],
                read_only=False,
                config_source=SOURCE_LOGGER,
                is_sensitive=False,
                synonyms=[],
                config_type=KIND_UNKNOWN,
                documentation="",
            )
            for name in wanted
        ]

    def change(self, change: ConfigChange, *, validate_only: bool) -> None:
        """Apply all steps; raises, and applies none, where one is invalid."""
        check_steps(change)
        self._check_node(change.name)
        for step in change.steps:
            self._check(step)
        if validate_only:
            return
        for step in change.steps:
            if step.value is None or step.step == Step.DELETE:
                self._levels.unset(step.name)
            else:
                self._levels.set(step.name, step.value)

    def _check_node(self, name: str) -> None:
        node = node_id(name)
        if node is None:
            raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
        if node != self._broker_id():
            raise InvalidRequest(f"Unexpected node id. Expected {self._broker_id()}, but received {name}")

    def _check(self, step: SettingStep) -> None:
        if step.step not in (Step.SET, Step.DELETE):
            operation = Step(step.step).name if step.step in list(Step) else str(step.step)
            raise InvalidRequest(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
        if step.name not in self._levels.names():
            raise InvalidConfig(f"Logger {step.name} does not exist!")
        if step.step == Step.DELETE and step.name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
        if step.step == Step.SET and step.value not in LEVEL_NUMBERS:
            raise InvalidConfig(
                f"Cannot set the log level of {step.name} to {step.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVEL_NUMBERS))}"
            )
