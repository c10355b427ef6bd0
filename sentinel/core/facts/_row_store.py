"""What the newest telemetry page of each rank's row store shows."""

from sentinel.core.picture import Picture
from sentinel.model.observation import StoreTelemetry

STUCK_S = 5.0
"""A healthy gather takes milliseconds; the store's own hard deadline is far below this."""


def newest_pages(picture: Picture) -> dict[int, StoreTelemetry]:
    """By rank."""
    return {rank: pages[-1] for rank, pages in picture.by_rank(StoreTelemetry).items()}


def oldest_s(page: StoreTelemetry) -> float:
    """For how long a gather or a read has been open."""
    return max(page.gather_s, page.oldest_read_age_s or 0.0)


def says(rank: int, page: StoreTelemetry) -> str:
    """The page in words."""
    holder = "" if page.lock_holder_tid is None else f", lock held by thread {page.lock_holder_tid}"
    return f"rank {rank}'s row store ({page.mode}) has had a gather open for {oldest_s(page):.1f} s{holder}"
