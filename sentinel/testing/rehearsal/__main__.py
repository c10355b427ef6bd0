"""`python -m sentinel.testing.rehearsal --role launcher --ranks N --folder DIR --port P …`"""

import argparse
from pathlib import Path

from sentinel.testing.rehearsal.launcher import launch
from sentinel.testing.rehearsal.rank import Settings, serve


def main() -> None:
    """Start the launcher, or one rank of it."""
    parser = argparse.ArgumentParser(prog="sentinel.testing.rehearsal")
    parser.add_argument("--role", choices=("launcher", "rank"), default="launcher")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--watchdog-timeout", type=float, default=300.0)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--prefill-tps", type=float, default=2000.0)
    parser.add_argument("--decode-log-interval", type=int, default=40)
    given = parser.parse_args()
    settings = Settings(
        folder=given.folder,
        rank=given.rank,
        ranks=given.ranks,
        watchdog_s=given.watchdog_timeout,
        step_s=given.step_s,
        prefill_tps=given.prefill_tps,
        log_interval=given.decode_log_interval,
    )
    if given.role == "launcher":
        launch(settings, given.port)
    else:
        serve(settings)


main()
