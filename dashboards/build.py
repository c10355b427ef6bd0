"""Write the boards: `python -m dashboards.build`. The JSON is committed, so that nobody needs the SDK to use it."""

from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.panels import rendered

FOLDER = Path(__file__).parent / "json"


def main() -> None:
    """Replace all files of the folder."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(rendered(board))


if __name__ == "__main__":
    main()
