"""What the agent itself observed and no other file says: JSON lines of observations, written into its ring.

Format: a header line `{"sentinel":"observations/1"}`, then one observation of `sentinel/model/observation.py` a line.
"""

import re
from collections.abc import Iterator

import msgspec

from sentinel.collector import Blob, Context, DocumentParser, Sample
from sentinel.model.observation import AnyObservation, Observation

HEADER = b'{"sentinel":"observations/1"}\n'
LINE_MAX = 1 << 20
_ABSURD = re.compile(r"\d{40}")
"""No number of the agent's is so long, and arithmetic with it would fail."""

_DECODER: msgspec.json.Decoder[AnyObservation] = msgspec.json.Decoder(AnyObservation)


def parse(blob: Blob, context: Context) -> Iterator[Observation]:
    """Observations as the agent made them; lines that are not one are left out."""
    del context
    for line in blob.lines():
        if len(line.text) <= LINE_MAX and line.text.startswith('{"kind"') and not _ABSURD.search(line.text):
            try:
                yield _DECODER.decode(line.text)
            except (msgspec.MsgspecError, RecursionError):
                continue


def _recognise(sample: Sample) -> bool:
    return sample.head.startswith(HEADER.decode().rstrip())


PARSER = DocumentParser(name="agent_notes", recognise=_recognise, parse=parse)
