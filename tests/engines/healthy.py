"""A healthy engine's life from its first slow token to a restart, under the real agent: nothing may be said."""

from tests.engines.cases import Ward
from tests.engines.engine import RealEngine
from tests.engines.load import Load, complete
from tests.engines.processes import wait_until
from tests.engines.watcher import Said, Watcher

SLOW_FIRST_TOKEN = "18"
BURST_TOKENS, STEADY_TOKENS = 300, 600
IDLE_SIGNS = 8
SERVED_S = 240.0
NOTICED_S = 30.0


def live(ward: Ward, worker: str, *, signs_when_idle: bool) -> list[Said]:
    """What the agent said during all of it: a slow start, bursts, idleness, steady load, shutdown and restart."""
    ward.discard()
    engine = ward.fresh()
    watcher = Watcher(ward.folder / f"{ward.name}-healthy", {engine.pid}).start()
    try:
        engine.fault("slow", engine.pid_of(worker), SLOW_FIRST_TOKEN)
        if signs_when_idle:
            watcher.learn()
        assert complete(engine.port, 8) > 0
        _served(engine, Load(engine.port, streams=3, tokens=40, rest_s=3.0), BURST_TOKENS)
        if signs_when_idle:
            watcher.learn(signs=watcher.signs() + IDLE_SIGNS)
        _served(engine, Load(engine.port), STEADY_TOKENS)
        engine.shut_down()
        wait_until(lambda: watcher.gone(engine.pid), NOTICED_S, "the agent sees the end")
        engine = ward.fresh()
        watcher.follow(engine.pid)
        assert complete(engine.port, 8) > 0
        engine.shut_down()
        wait_until(lambda: watcher.gone(engine.pid), NOTICED_S, "the agent sees the end")
        return watcher.said()
    finally:
        watcher.stop()
        engine.kill()


def _served(engine: RealEngine, load: Load, tokens: int) -> None:
    load.start()
    try:
        wait_until(lambda: load.received >= tokens, SERVED_S, f"{tokens} tokens are served", engine.log)
    finally:
        load.stop()
