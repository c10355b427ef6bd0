"""Facts about the birth of communicators: who began to build one, who finished, who never came."""

from sentinel.core.collectives import Life, keys_of, lives
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import NcclComm, NcclNote, Origin, Phase, Ras

LOGS = "NCCL debug logs with INIT lines"


def _open_lives(picture: Picture) -> list[Life]:
    return [
        life
        for life in picture.memo(lives).values()
        if life.started.event == "init_start" and not life.completed and not life.ended
    ]


def _init_open(picture: Picture) -> Fact:
    building = sorted(_open_lives(picture), key=lambda life: life.started.origin)
    if building:
        cites = [
            Cite(f"rank {life.rank} of {life.nranks}: init began and did not end", life.started.origin)
            for life in building
        ]
        return Fact(value=True, cites=tuple(cites[:8]))
    for answer in picture.all(Ras):
        if any(comm.status == "INIT" for comm in answer.comms) and not answer.garbled:
            return Fact(value=True, cites=(Cite("RAS: a communicator is still in INIT", answer.origin),))
    done = [life for life in picture.memo(lives).values() if life.completed]
    if done:
        return Fact(value=False, cites=(Cite("every init that began also ended", done[0].started.origin),))
    return _from_phases(picture)


def _from_phases(picture: Picture) -> Fact:
    """A boot whose last sign is NCCL's version line, printed at the first init, or the begin of the rendezvous."""
    version = next((note for note in picture.all(NcclNote) if note.topic == "version"), None)
    phases = [phase for phase in picture.all(Phase) if phase.phase != "start"]
    if version is None or picture.has(NcclComm) or not phases:
        return unknown(LOGS)
    later = {phase.phase for phase in phases if phase.phase not in ("dist_init", "shutdown")}
    if later:
        return unknown(LOGS)
    return Fact(value=True, cites=(Cite("start-up ends at NCCL's version line", version.origin),))


def _started(picture: Picture) -> Fact:
    if not picture.has(NcclComm):
        return unknown(LOGS)
    found = picture.memo(lives)
    chosen = _open_lives(picture) or list(found.values())
    ranks = {rank for life in chosen if (rank := _rank(picture, life)) is not None}
    cites = [Cite(f"rank {life.rank} of {life.nranks} began init", life.started.origin) for life in chosen]
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites[:8]))


def _rank(picture: Picture, life: Life) -> int | None:
    return picture.identity.rank_of(life.process[0] or None, life.process[1])


def _absent(picture: Picture) -> Fact:
    """Only processes with a NCCL log of their own can be said not to have come; a missing file says nothing."""
    building = _open_lives(picture)
    if not building:
        return unknown(LOGS) if not picture.has(NcclComm) else Fact(value=(), cites=_done(picture))
    names = keys_of(picture.memo(lives))
    here = {(life.process, name) for key, life in picture.memo(lives).items() for name in (names[key],)}
    sizes = {names[(life.process, life.comm, life.file)]: life.nranks for life in building}
    noted: dict[tuple[str, int], Origin] = {}
    for note in picture.all(NcclNote):
        if note.pid is not None and note.topic in ("bootstrap", "version", "network"):
            noted.setdefault((note.host or "", note.pid), note.origin)
    ranks: set[int] = set()
    cites: list[Cite] = []
    complete = True
    for name, nranks in sizes.items():
        came = {process for process, other in here if other == name}
        complete &= len(came) == nranks
        for process in sorted(set(noted) - came) if len(came) < nranks else ():
            rank = picture.identity.rank_of(process[0] or None, process[1])
            if rank is not None:
                ranks.add(rank)
                cites.append(Cite(f"rank {rank} has no init line for this communicator", noted[process]))
    if ranks or complete:
        return Fact(value=tuple(sorted(ranks)), cites=tuple(cites) or _done(picture))
    return unknown("NCCL debug logs of the other ranks of the communicator that does not come up")


def _done(picture: Picture) -> tuple[Cite, ...]:
    return tuple(Cite("init line", life.started.origin) for life in list(picture.memo(lives).values())[:2])


COMM_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="comm.init_open",
        unit="bool",
        about="A communicator began to be built and was not finished.",
        compute=_init_open,
    ),
    FactSpec(
        name="comm.init_started_ranks",
        unit="ranks",
        about="Ranks that began to build the communicator.",
        compute=_started,
    ),
    FactSpec(
        name="comm.init_absent_ranks",
        unit="ranks",
        about="Ranks that never began although their peers did.",
        compute=_absent,
    ),
)
