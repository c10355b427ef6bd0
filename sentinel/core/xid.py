"""NVIDIA Xid numbers as data: what each one is, and whether it can be the cause of a stall.

Numbers and names follow NVIDIA's catalogue of 2025-10 and the header of driver 595.45; the effect column is ours.
"""

from dataclasses import dataclass
from typing import Literal

Effect = Literal["fault", "application", "secondary", "info"]
"""`fault`: GPU, memory, link or driver fault that stalls or kills its users. `application`: a fault of the program that
runs there, which kills its own process. `secondary`: follows another event (a kill, another Xid, a peer's death).
`info`: announces something that stops nobody."""

Severity = Literal["info", "warning", "error", "fatal"]


@dataclass(frozen=True, slots=True)
class Xid:
    """One catalogue entry."""

    number: int
    name: str
    effect: Effect
    severity: Severity


_FAULTS = {
    8: "FIFO idle timeout, GPU stopped processing", 46: "GPU timeout", 48: "double bit memory error",
    61: "internal micro-controller breakpoint", 62: "internal micro-controller halt", 64: "row remap failure",
    74: "NVLink error", 79: "fallen off the bus", 81: "VGA subsystem error", 94: "contained memory error",
    95: "uncontained memory error", 109: "context switch timeout", 110: "security fault", 119: "GSP RPC timeout",
    120: "GSP error", 136: "NVLink training failed", 140: "unrecovered memory error", 143: "GPU initialisation failed",
    144: "NVLink SAW error", 145: "NVLink RLW error", 146: "NVLink TLW error", 147: "NVLink TREX error",
    148: "NVLink NVLPW control error", 149: "NVLink NETIR error", 150: "NVLink MSE error", 151: "key rotation failed",
    155: "NVLink software defined error", 158: "GPU fatal timeout", 167: "PCIe fatal timeout", 169: "SEC2 halt",
    171: "uncorrectable DRAM error", 172: "uncorrectable SRAM error", 173: "C2C fatal link failure",
    175: "memory subsystem error behind a GSP timeout",
}  # fmt: skip
_FATAL = frozenset((48, 62, 64, 79, 95, 119, 120, 140, 143, 158, 167, 173, 175))

_APPLICATION = {
    11: "invalid push buffer", 13: "graphics engine exception", 25: "invalid or illegal push buffer", 31: "MMU fault",
    32: "invalid push buffer stream", 39: "copy engine error", 40: "copy engine error", 41: "copy engine error",
    43: "channel reset, GPU stopped processing", 68: "video processor exception", 69: "graphics class error",
    80: "corrupted push buffer", 126: "copy engine error", 127: "copy engine error", 128: "copy engine error",
    129: "copy engine error", 130: "copy engine error", 131: "copy engine error", 132: "copy engine error",
    133: "copy engine error", 134: "copy engine error", 135: "copy engine error", 174: "channel's process killed",
}  # fmt: skip

_SECONDARY = {
    45: "preemptive channel removal", 108: "NVLink remote translation error", 137: "NVLink privilege error",
}  # fmt: skip

_INFO = {
    38: "FECS watchdog timeout", 54: "auxiliary power not connected", 63: "row remap recorded",
    66: "illegal access by driver", 67: "illegal access by driver", 92: "high single bit error rate",
    121: "C2C corrected error", 122: "SPI PMU error", 123: "SPI write error", 124: "SPI read error",
    125: "InfoROM error", 141: "CUDA fast path", 154: "GPU recovery action changed", 156: "resource retirement",
    157: "resource retirement failure", 159: "CHI non-data error", 160: "channel retirement",
    161: "channel retirement failure", 162: "power smoothing", 163: "power smoothing", 164: "power smoothing",
    165: "power smoothing", 166: "NVLink encryption", 168: "reduced memory capacity", 170: "NVLink encryption",
    176: "PCIe correctable fault",
}  # fmt: skip

XIDS: dict[int, Xid] = {
    **{code: Xid(code, name, "fault", "fatal" if code in _FATAL else "error") for code, name in _FAULTS.items()},
    **{code: Xid(code, name, "application", "error") for code, name in _APPLICATION.items()},
    **{code: Xid(code, name, "secondary", "warning") for code, name in _SECONDARY.items()},
    **{code: Xid(code, name, "info", "info") for code, name in _INFO.items()},
}


def xid(code: int) -> Xid:
    """Catalogue entry of a number; an unlisted one stops nobody as far as is known.

    >>> xid(79).effect, xid(63).effect, xid(45).effect
    ('fault', 'info', 'secondary')
    """
    return XIDS.get(code) or Xid(code, "unlisted", "info", "warning")


def effect_of(code: int, text: str, cause: int | None = None) -> Effect:
    """Effect of one printed Xid. 154 is a fault when it demands an action; a stated cause makes a line secondary."""
    if cause is not None and cause != code:
        return "secondary"
    if code == 154:
        return "info" if text.rstrip().endswith("(None)") else "fault"
    return xid(code).effect
