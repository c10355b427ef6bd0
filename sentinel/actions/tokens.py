"""Does the engine generate? One token is asked for through its own API; an answer without a token proves nothing.

`POST /v1/completions` with `max_tokens` 1, as SGLang 0.5, vLLM 0.32 and the co-packaged engine serve it. `/health` is
not asked: it answers 200 while every rank hangs.
"""

import http.client
import json
from urllib.parse import urlsplit

BODY_BYTES_MAX = 64 << 10


def generates(url: str, within_s: float) -> bool:
    """Whether a token came within that time."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        return False
    asked = {"model": _model(parts.hostname, parts.port or 80, within_s), "prompt": "1", "max_tokens": 1}
    told = _call(parts.hostname, parts.port or 80, "POST", "/v1/completions", within_s, json.dumps(asked))
    if not isinstance(told, dict):
        return False
    usage, choices = told.get("usage"), told.get("choices")
    counted = isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int) and usage["completion_tokens"]
    text = choices[0].get("text") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    return bool(counted) or bool(text)


def _model(host: str, port: int, within_s: float) -> str:
    """The first model that the server lists; engines with one model ignore the name."""
    told = _call(host, port, "GET", "/v1/models", within_s)
    listed = told.get("data") if isinstance(told, dict) else None
    first = listed[0] if isinstance(listed, list) and listed else None
    return str(first.get("id", "default")) if isinstance(first, dict) else "default"


def _call(host: str, port: int, method: str, path: str, within_s: float, body: str | None = None) -> object:
    """The JSON of a 200 answer, None for anything else. Each read waits no longer than `within_s`."""
    connection = http.client.HTTPConnection(host, port, timeout=within_s)
    try:
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read(BODY_BYTES_MAX)
        return json.loads(data) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
