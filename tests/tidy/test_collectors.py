"""Every source that has a parser is used."""

from importlib import import_module

from sentinel.collectors import ALL
from tests.tidy import sources


def test_every_collector_module_is_listed() -> None:
    """False: a parser exists, its tests are green, and `analyze` never runs it."""
    on_disk = {
        module.path.removeprefix("collectors/").removesuffix(".py")
        for module in sources.product()
        if module.room == "collectors"
    }
    public = {name for name in on_disk if not name.startswith("_")}
    unlisted, without = [], set()
    for name in sorted(public):
        module = import_module(f"sentinel.collectors.{name}")
        parsers = getattr(module, "PARSERS", ()) or tuple(filter(None, [getattr(module, "PARSER", None)]))
        unlisted += [f"{name}: {parser.name}" for parser in parsers if parser not in ALL]
        without |= set() if parsers else {name}

    assert public and unlisted == []
    assert {name for name in without if not imported_by_another(name)} == set()


def imported_by_another(name: str) -> bool:
    collectors = [module for module in sources.product() if module.room == "collectors"]
    return any(f"sentinel.collectors.{name} import" in module.text for module in collectors)


def test_parser_names_are_unique() -> None:
    """False: the report says that one parser read a file when it was another."""
    names = [parser.name for parser in ALL]

    assert sorted(set(names)) == sorted(names)
