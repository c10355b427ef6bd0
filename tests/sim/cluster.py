"""`python -m tests.sim.cluster 10000`: that many fault sequences of a whole cluster, each from its own seed.

Exit status 1 when an invariant broke, or when a stalled group was not judged and recovered once the faults stopped.
"""

import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from random import Random

from sentinel.core.facts import NAMES
from sentinel.core.rules import Rule
from sentinel.rulebook import load_rules
from sentinel.testing.cluster_sim import ClusterSim, Violation

CLASSES = ("crash.rank_exit", "unknown")
FIRST_SEED = 1
TROUBLE_S = 600.0
AFTER_S = 1500.0
"""After the last fault: the lease's time-out, a clock's quarantine, every wait of a plan, and a second restart."""


@cache
def rules() -> tuple[Rule, ...]:
    """The rules that simulated evidence can reach, in the order of the ladder."""
    return tuple(rule for rule in load_rules(NAMES) if rule.kind in CLASSES)


def sequence(seed: int) -> ClusterSim:
    """One life: engines break while everything else does too; then the faults stop."""
    world = ClusterSim(seed, rules())
    dice = Random(seed + 1_000_000)
    begin_s = dice.uniform(60, 150)
    world.trouble(begin_s, begin_s + TROUBLE_S)
    for spec in world.specs:
        world.break_rank(spec.name, dice.uniform(100, begin_s + TROUBLE_S))
    world.run(begin_s + TROUBLE_S + AFTER_S)
    return world


def wrong(world: ClusterSim) -> list[str]:
    """What is not as it should be at the end of a life."""
    found = []
    leaders = [leader for leader in world.leaders.values() if leader is not None and leader.core is not None]
    if len(leaders) != 1:
        found.append(f"{len(leaders)} coordinators lead")
    for spec in world.specs:
        state = leaders[0].core.state.groups[spec.name] if leaders and leaders[0].core else None
        halted = state is not None and state.phase == "halted"
        if not world.progresses(spec.name) and not halted:
            found.append(f"{spec.name} stands still and is {state and state.phase}: {state and state.refusals}")
    return found


def outcome(seed: int) -> tuple[int, int, int, list[str]]:
    """(kills, crashes, groups halted for a person, what was wrong) of one seed."""
    try:
        world = sequence(seed)
    except Violation as error:
        return 0, 0, 0, [f"seed {seed}: {error}"]
    except Exception:
        return 0, 0, 0, [f"seed {seed}: {traceback.format_exc(limit=-3)}"]
    halted = sum(
        state.phase == "halted"
        for leader in world.leaders.values()
        if leader is not None and leader.core is not None
        for state in leader.core.state.groups.values()
    )
    return len(world.kills), world.ills.crashes, halted, [f"seed {seed}: {words}" for words in wrong(world)]


def main(count: int, first: int = FIRST_SEED) -> int:
    """Run them on all cores; returns how many went wrong."""
    kills = crashes = halted = bad = 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for one in pool.map(outcome, range(first, first + count), chunksize=10):
            kills, crashes, halted, bad = kills + one[0], crashes + one[1], halted + one[2], bad + bool(one[3])
            for words in one[3]:
                sys.stdout.write(words + "\n")
    sys.stdout.write(
        f"{count} sequences, {crashes} crashes, {kills} engines stopped, {halted} groups left to a person, "
        f"{bad} wrong\n"
    )
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
