"""`python -m tests.sim.hours 1000`: that many healthy hours in virtual time, each from its own seed.

Exit status 1 at the first effect of any kind: a healthy engine gives the core nothing to do.
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from sentinel.core.facts import NAMES
from sentinel.core.rules import Rule
from sentinel.rulebook import load_rules
from sentinel.testing.simulation import Simulation

HOUR_S = 3600.0
FIRST_SEED = 1000


@cache
def rules() -> tuple[Rule, ...]:
    """Loaded once a process."""
    return tuple(load_rules(NAMES))


def healthy_hour(seed: int) -> list[str]:
    """What the core did in this hour; nothing is right."""
    log = Simulation(rules(), seed, ranks=1 + seed % 8, scraped=seed % 3 > 0).run(HOUR_S)
    return [f"seed {seed}, after {at_s:.0f} s: {effect}" for at_s, effect in log.effects]


def main(hours: int) -> int:
    """Run them on all cores; returns the number of hours with an effect."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        seeds = range(FIRST_SEED, FIRST_SEED + hours)
        wrong = [effects for effects in pool.map(healthy_hour, seeds, chunksize=10) if effects]
    for effects in wrong:
        sys.stdout.write("\n".join(effects) + "\n")
    sys.stdout.write(f"{hours} healthy hours, {len(wrong)} with an alarm\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]))))
