"""Settings of a process: `/proc/PID/environ` (with its NUL bytes or one a line), `env`, `export` and compose forms,
and an engine's `/proc/PID/cmdline`.

Only variables of the families that bear on a hang are kept: an environment holds secrets, and evidence is passed on.
"""

import re
import shlex
from collections.abc import Iterator

from sentinel.collector import Blob, Context, DocumentParser, Sample
from sentinel.model.observation import Environment, Origin

FAMILIES = ("NCCL_", "GLOO_", "TORCH_", "CUDA_", "SGLANG_", "SGL_", "VLLM_")
TEXT_CAP = 1 << 20
VALUE_CAP = 1024
MAX_VALUES = 2_000

_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSW|CREDENTIAL)", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"^\s*(?:export |declare -x |ENV |- ?)?\"?([A-Za-z_][A-Za-z0-9_]{0,127})(?:=|: )(.*)$", re.DOTALL
)
_FAMILY = re.compile(r"(?:^|[\s\0\"])(?:" + "|".join(FAMILIES) + r")[A-Z0-9_]{1,100}(?:=|: )")
_GLUED = re.compile("(?:" + "|".join(FAMILIES) + r")[A-Z0-9_]{1,100}=")
"""An unframed sample has lost its NUL bytes: assignments then follow each other without a gap."""
_ENGINE = re.compile(
    r"sglang[./ ]|vllm[. ](?:serve|entrypoints)|\bvllm serve\b|trtllm-serve|tensorrt_llm|sentinel[-_.]engine"
)
_PID_IN_NAME = re.compile(r"(?<!\d)(\d{2,7})(?!\d)")


def assignments(text: str) -> dict[str, str]:
    """Variables of the kept families in any of the usual forms; of a variable given twice the last one."""
    found: dict[str, str] = {}
    parts = text.split("\0") if "\0" in text else text.split("\n")
    for part in parts:
        match = _ASSIGNMENT.match(part[: VALUE_CAP + 200].rstrip())
        if match is None or not match[1].startswith(FAMILIES) or _SECRET.search(match[1]):
            continue
        value = match[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if len(found) < MAX_VALUES or match[1] in found:
            found[match[1]] = value.rstrip('",')[:VALUE_CAP] if part.lstrip()[:1] == '"' else value[:VALUE_CAP]
    return found


def arguments(text: str) -> tuple[str, ...]:
    """argv of an engine's command line (NUL-separated or as a shell would read it); empty for any other text."""
    head = text[:65536].strip("\0\n ")
    if not _ENGINE.search(head.replace("\0", " ")) or head.count("\n") > 20:
        return ()
    if "\0" in head:
        parts = head.split("\0")
    else:
        try:
            parts = shlex.split(head.replace("\\\n", " "))
        except ValueError:
            parts = head.split()
    return tuple(_without_secrets([part[:VALUE_CAP] for part in parts[:MAX_VALUES]]))


def _without_secrets(parts: list[str]) -> Iterator[str]:
    """The values of options such as `--api-key x` and `--token=x` are not kept."""
    hide = False
    for part in parts:
        name, mark, _ = part.partition("=")
        secret = name.startswith("-") and _SECRET.search(name) is not None
        if hide and not part.startswith("--"):
            yield "…"
        else:
            yield f"{name}=…" if secret and mark else part
        hide = secret and not mark


def _recognise(sample: Sample) -> bool:
    """Assignments only: an engine log that mentions a variable is not an environment."""
    if sample.tail:
        return False
    parts = [part for part in re.split(r"[\0\n]", sample.head[:65536]) if part.strip()]
    if not parts:
        return False
    if _FAMILY.search(sample.head) or (len(parts) == 1 and _GLUED.search(parts[0][:65536])):
        good = sum(1 for part in parts if _ASSIGNMENT.match(part[:300]) or part.startswith(("environment", "#")))
        return good * 10 >= len(parts) * 8
    return len(parts) <= 8 and len(sample.head) < 16384 and _ENGINE.match(_program(parts[0])) is not None


def _program(line: str) -> str:
    """The command line without the interpreter in front."""
    return re.sub(
        r"^(?:\S*/)?(?:python[\d.]*|env|nohup|exec|bash)[\s\0]+(?:-m[\s\0]*)?(?:\S*/bin/)?", "", line[:4096].lstrip()
    )


def _parse(blob: Blob, context: Context) -> Iterator[Environment]:
    data = bytearray()
    for chunk in blob.chunks():
        data += chunk
        if len(data) > TEXT_CAP:
            break
    text = bytes(data[:TEXT_CAP]).decode("utf-8", "replace")
    values = assignments(text)
    argv = () if values else arguments(text)
    if values or argv:
        pid = _PID_IN_NAME.search(context.name.rpartition("/")[2])
        yield Environment(
            origin=Origin(context.name, 1),
            host=context.host,
            pid=int(pid[1]) if pid else None,
            values=values,
            argv=argv,
        )


PARSER = DocumentParser(name="environment", recognise=_recognise, parse=_parse)
