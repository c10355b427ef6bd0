"""All scenario families. Each scenario is a function from a random source to a finished story with its label."""

from collections.abc import Callable
from random import Random

from sentinel.testing.generator.scenarios import (
    busy,
    control,
    crash,
    device,
    divergence,
    fault,
    healthy,
    host,
    quiet,
    slow,
)
from sentinel.testing.generator.story import Story

Scenario = Callable[[Random], Story]

ALL: tuple[Scenario, ...] = (
    *healthy.SCENARIOS, *quiet.SCENARIOS, *busy.SCENARIOS, *host.SCENARIOS, *divergence.SCENARIOS, *device.SCENARIOS,
    *control.SCENARIOS, *crash.SCENARIOS, *fault.SCENARIOS, *slow.SCENARIOS,
)  # fmt: skip
