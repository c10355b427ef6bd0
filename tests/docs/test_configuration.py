"""The reference of settings is what the schema says."""

from click.testing import CliRunner

from sentinel.cli import sentinel
from sentinel.config import SECTIONS
from sentinel.config_help import MEANINGS
from tests.tidy.sources import ROOT


def test_every_setting_has_a_meaning_and_no_other_has() -> None:
    """False: a setting exists that nobody can know of, or one is described that is refused."""
    assert set(MEANINGS) == {f"{section}.{key}" for section, kind in SECTIONS.items() for key in kind.__struct_fields__}


def test_the_committed_reference_is_fresh() -> None:
    """False: the page tells a default that is not in force; `sentinel config docs` writes it anew."""
    shown = CliRunner().invoke(sentinel, ["config", "docs"])

    assert shown.exit_code == 0
    assert shown.output == (ROOT / "docs" / "configuration.md").read_text()
