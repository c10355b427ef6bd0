"""Every kind of observation and effect with prompts and keys in all its texts: a bundle of the journal holds none.

Live sources and rules speak only in these kinds, so that a new source, or a new field, is covered when it is made.
"""

from typing import Any, get_args

import msgspec
import msgspec.inspect as inspect
import pytest

from sentinel.model.effect import AnyEffect
from sentinel.model.event import Observed
from sentinel.model.observation import AnyObservation
from sentinel.model.stamp import Stamp
from sentinel.record.bundle import Order, create
from sentinel.record.journal import Entry
from sentinel.record.reader import Bundle
from sentinel.record.slice import NAME
from tests.record.bundle_making import KEY, incident

PROMPT = "Zwetschgendatschi, whispered the lighthouse keeper of Ballyvaughan"
SECRET = "sk-proj-Zq81mVb7TtYw2LkNc4RxPj0sHd6Fg3Ua"
CANARIES = ("Zwetschgendatschi", "Ballyvaughan", SECRET)
SAYS = f"said '{PROMPT}' with key {SECRET}"
AT = Stamp(mono_ns=100 * 10**9, wall_ns=1_795_946_440 * 10**9, boot_id="b")
KINDS = (*get_args(AnyObservation), *get_args(AnyEffect))


def filled(kind: inspect.Type) -> Any:
    """Plain values of a type in which every text is the canary, and everything optional is there."""
    match kind:
        case inspect.StrType():
            return SAYS
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.UnionType(types=types):
            best = [one for one in types if not isinstance(one, inspect.NoneType)]
            return filled(best[0])
        case inspect.StructType(fields=fields, tag=tag, tag_field=name):
            value = {one.encode_name: filled(one.type) for one in fields}
            return {name: tag, **value} if name else value
        case (
            inspect.VarTupleType(item_type=item)
            | inspect.ListType(item_type=item)
            | inspect.FrozenSetType(item_type=item)
        ):
            return [filled(item)]
        case inspect.TupleType(item_types=items):
            return [filled(item) for item in items]
        case inspect.DictType(key_type=key, value_type=item):
            return {("7" if isinstance(key, inspect.IntType) else SAYS): filled(item)}
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 1.5
        case _:
            raise TypeError(f"no canary for {kind}: teach this test the type")


def planted(kind: type) -> Any:
    """A value of this kind with the canary in every text."""
    return msgspec.convert(filled(inspect.type_info(kind)), kind)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every file of the bundle of an incident whose journal holds one record of every kind."""
    root = tmp_path_factory.mktemp("journal")
    home = incident(root)
    records = []
    for number, kind in enumerate(KINDS):
        value = planted(kind)
        seen = Observed(at=AT, engine="sglang:4711", seen=value) if kind in get_args(AnyObservation) else None
        entry = Entry(n=number, f=value) if seen is None else Entry(n=number, e=seen)
        records.append(msgspec.json.encode(entry))
    (home / NAME).write_bytes(b"\n".join(records) + b"\n")
    with (home / "incident.jsonl").open("ab") as file:
        for kind in get_args(AnyEffect):
            file.write(msgspec.json.encode({"at": AT, "effect": planted(kind)}) + b"\n")
    create(home, root / "bundle.tar.zst", Order(key=KEY))
    with Bundle(root / "bundle.tar.zst") as bundle:
        assert list(bundle.problems()) == []
        return {name: b"".join(bundle.chunks(name)).decode() for name in bundle.names}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_canary_is_in_every_kind_that_has_a_text(kind: type) -> None:
    """False: a kind was added that this test cannot fill, and its texts are never looked for."""
    assert SECRET in msgspec.json.encode(planted(kind)).decode()


def test_no_text_of_any_record_of_the_journal_leaves_with_a_bundle(shown: dict[str, str]) -> None:
    """False: what a live source read, a prompt in a log or a key in an environment, is mailed with the journal."""
    leaks = {
        (name, canary, text[max(0, text.index(canary) - 80) : text.index(canary)])
        for name, text in shown.items() for canary in CANARIES if canary in text
    }  # fmt: skip

    assert leaks == set()
    assert shown[NAME].count("\n") == len(KINDS)
