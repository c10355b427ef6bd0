"""The row store: exact FP8 rows from NVMe or locked RAM, bounded, observable, switchable live."""

from .errors import BadTable, NoAnswer, RowStoreError, StagingFailed, StoreRefused
from .geometry import FP4, FP8, Header, HeadRange, RowFormat, Slice
from .store import CallbackLane, Gathered, Node, Store, SwitchState
from .writer import formula_source, write_table

__all__ = [
    "FP4",
    "FP8",
    "BadTable",
    "CallbackLane",
    "Gathered",
    "HeadRange",
    "Header",
    "NoAnswer",
    "Node",
    "RowFormat",
    "RowStoreError",
    "Slice",
    "StagingFailed",
    "Store",
    "StoreRefused",
    "SwitchState",
    "formula_source",
    "write_table",
]
