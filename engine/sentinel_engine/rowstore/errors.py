"""Errors of the row store; each text says what the operator can do next."""


class RowStoreError(Exception):
    """Base of everything this package raises on purpose."""


class BadTable(RowStoreError):
    """A file is not what its header or manifest says."""


class StagingFailed(RowStoreError):
    """A table could not be written; nothing was left behind under its name."""


class StoreRefused(RowStoreError):
    """The core refused an open, a switch or a request; `status` is its name for the reason."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class NoAnswer(RowStoreError):
    """A store or keeper did not answer on its socket."""
