"""Valid messages of every kind that travels between agents, coordinator, people and helper, to be damaged."""

import msgspec

from sentinel.model.cluster import Answered, ClusterState, GroupState, Order, Plan, Step, Told
from sentinel.model.group import Ack, Command, EngineReport, HostReport, Lease, StoreReport
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Action, Evidence, Verdict

AT = Stamp(mono_ns=1_000_000_000_000, wall_ns=1_795_946_440_000_000_000, boot_id="b")
VERDICT = Verdict(
    kind="hang.host_callback", stalled=True, confidence="high", summary="rank 1 waits in a host callback",
    evidence=(Evidence(fact="stopped", source="py-spy", weight="strong", says="rank 1 waits", supports=True),),
    actions=(Action(action="restart_engine"), Action(action="rowstore_mode", to="ram")),
)  # fmt: skip
COMMAND = Command(
    id="p1/stop/one", epoch=7, beat=3, verb="stop", group="chat", host="one", incarnation="one-a", incident="chat-1.1",
    plan="p1", args={"within_s": "60", "mode": "ram"},
)  # fmt: skip
ACK = Ack(id="p1/stop/one", host="one", outcome="done", checks={"processes_gone": True, "ports_free": None}, took_s=1.5)
REPORT = HostReport(
    host="one", at=AT, agent="a", age_s=1e4, epoch_max=6,
    engines=(
        EngineReport(
            group="chat", incarnation="one-a", phase="judged", moved_s=900.0, silence_s=100.0, outstanding=True,
            incident="x-1", verdict=VERDICT, store=StoreReport(mode="nvme", live=True, stuck_lanes=(1, 2)),
        ),
    ),
)  # fmt: skip
LEASE = Lease(holder="one/41/99", epoch=7, beat=3)
ORDER = Order(id="0a1b", verb="pause", reason="test", by="somebody", group="chat", value="on", seconds=60.0)
TOLD = Told(
    what="verdict", key="k", severity="critical", words="it hangs", group="chat", incident="chat-1.1", verdict=VERDICT
)
STATE = ClusterState(
    saved=AT, mode="approve", suspected=[(900.0, "chat")],
    groups={
        "chat": GroupState(
            phase="acting", incident="chat-1.1", verdict=VERDICT, incarnations={"one": "one-a"}, restarts=[800.0],
            plan=Plan(
                id="p1", kind="restart", cause="hang", incarnations={"one": "one-a"}, acks={"one": ACK},
                steps=(Step(name="stop", verb="stop", hosts=("one",), limit_s=110.0, args={"within_s": "60"}),),
            ),
        )
    },
)  # fmt: skip
ANSWERED = Answered(order=ORDER, ok=True, says=("paused",))


def encoded(*messages: object) -> tuple[bytes, ...]:
    """What stands on the bus for them."""
    return tuple(msgspec.json.encode(message) for message in messages)


EVERY = encoded(COMMAND, ACK, REPORT, LEASE, ORDER, TOLD, STATE, ANSWERED)
