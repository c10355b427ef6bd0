"""Evidence with canaries: what users wrote, what opens doors, and who and where, planted in every kind of source."""

import json
from pathlib import Path

PROMPT = "Marmalade quokka manifests my diagnosis of lupus"
SHORT_PROMPT = "lupus quokka"
ANSWER = "Dear Marmalade, chloroquine helps quokkas"
TOKEN_IDS = "9906, 11, 1917, 358, 1097, 264, 8415, 430, 17076, 13, 220, 4718"
SPARE_TOKEN_IDS = [40817, 33121, 271, 90210, 4, 77, 12345, 67, 8901, 234, 5678, 90]
PROVIDER_KEY = "sk-proj-Qu0kkaQu0kkaQu0kkaQu0kka1234"
HUB_TOKEN = "hf_QuokkaQuokkaQuokkaQuokkaQuokka"
CLOUD_KEY = "AKIAQUOKKAQUOKKA1234"
PASSWORD = "tr0ub4dor-quokka"
PLAIN_SECRET = "quokkasesame"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJxdW9ra2EifQ.c2lnbmF0dXJlcXVva2th"
BASE64 = "UXVva2thcyBhcmUgc21hbGwgbWFjcm9wb2RzIGZyb20gV2VzdGVybiBBdXN0cmFsaWE3Cg=="
PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDquokka"
HOST = "quokka-gpu-17"
DOMAIN = "quokka-gpu-17.island.example.com"
ADDRESS = "10.77.13.201"
USER = "zquokka"
GUID = "506b:4b03:00f4:9a71"
GPU_UUID = "GPU-5f0a9c1e-7b2d-4e8f-a1b3-9d7c5e2f4a60"
CUSTOMER = "quokkacorp"
MAIL = "marmalade@quokkacorp.example"

CANARIES = (
    PROMPT, "Marmalade", "quokka manifests", SHORT_PROMPT, "lupus", "diagnosis of", ANSWER, "chloroquine", TOKEN_IDS,
    "9906, 11, 1917", "40817", "90210", PROVIDER_KEY, "Qu0kka", HUB_TOKEN, CLOUD_KEY, PASSWORD, PLAIN_SECRET, JWT,
    "eyJzdWIi", BASE64, "UXVva2th", PEM_BODY, HOST, DOMAIN, "island.example", ADDRESS, USER, GUID, GPU_UUID, "5f0a9c1e",
    CUSTOMER, MAIL,
)  # fmt: skip

SGLANG = f"""\
[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/data/{CUSTOMER}/llm', api_key='{PLAIN_SECRET}', tp_size=2)
[2026-11-29 10:00:01 TP0] Decode batch. #running-req: 4, #token: 4096, token usage: 0.10, \
gen throughput (token/s): 90.1, #queue-req: 0
[2026-11-29 10:00:02 TP0] Receive: obj=GenerateReqInput(rid='4f1c', text='{PROMPT}', input_ids=[{TOKEN_IDS}])
[2026-11-29 10:00:03 TP0] Finish: obj={{'text': '{ANSWER}', 'meta_info': {{'id': '4f1c'}}}}
[2026-11-29 10:00:04 TP0] Watchdog timeout (self.watchdog_timeout=300, self.soft=False)
[2026-11-29 10:00:04 TP0] self.cur_batch.batch_size()=1, self.cur_batch.reqs=[Req(rid=4f1c, input_ids=[{TOKEN_IDS}], \
output_ids=array('q', [{TOKEN_IDS}]), origin_input_text='{SHORT_PROMPT}')], \
self.token_to_kv_pool_allocator.available_size()=5
[2026-11-29 10:00:05 TP0] user said: {PROMPT}
{PROMPT}
[2026-11-29 10:00:06 TP0] Prompt begins: 'First words
{SHORT_PROMPT}
please write the story of the patient {SHORT_PROMPT}
[2026-11-29 10:00:07 TP0] ValueError: cannot parse {ANSWER}
[2026-11-29 10:00:08] INFO:     {ADDRESS}:4711 - "POST \
/v1/completions?key={PLAIN_SECRET}&q={SHORT_PROMPT.replace(" ", "+")} HTTP/1.1" 200 OK
[2026-11-29 10:00:09] fetching https://svc:{PASSWORD}@{DOMAIN}:8443/models and http://{ADDRESS}/x for {MAIL}
[2026-11-29 10:00:10] Authorization: Bearer {PLAIN_SECRET}
[2026-11-29 10:00:10] session {JWT}
[2026-11-29 10:00:11] data {BASE64}
-----BEGIN PRIVATE KEY-----
{PEM_BODY}
{PEM_BODY}
-----END PRIVATE KEY-----
[2026-11-29 10:00:12] loading from /home/{USER}/models on {HOST} with {CLOUD_KEY} and {PROVIDER_KEY}
Traceback (most recent call last):
  File "/home/{USER}/sglang/scheduler.py", line 10, in run_batch
    raise ValueError("{PROMPT}")
ValueError: {PROMPT}
"""

VLLM = f"""\
INFO 11-29 10:00:01 [logger.py:41] Received request chatcmpl-77aa: prompt: '{PROMPT}', params: SamplingParams(n=1, \
stop=['{SHORT_PROMPT}'], max_tokens=16), prompt_token_ids: [{TOKEN_IDS}], lora_request: None.
INFO 11-29 10:00:01 [logger.py:41] Received request chatcmpl-77ab: prompt: {SHORT_PROMPT}, params: None
ERROR 11-29 10:00:02 [dump_input.py:69] Dumping input data for V1 LLM engine (v0.11.0) with config: \
model='/data/{CUSTOMER}/llm', tokenizer='/data/{CUSTOMER}/llm'
ERROR 11-29 10:00:02 [dump_input.py:76] Dumping scheduler output for model execution: SchedulerOutput(\
scheduled_new_reqs=[NewRequestData(req_id=chatcmpl-77aa,prompt_token_ids=[{TOKEN_IDS}],mm_inputs=[],\
sampling_params=SamplingParams(n=1, stop=['{SHORT_PROMPT}']),block_ids=([1],))], scheduled_cached_reqs=[])
DEBUG 11-29 10:00:03 [api.py:9] body={{"model": "m", "messages": [{{"role": "user", "content": "{PROMPT}"}}]}}
DEBUG 11-29 10:00:03 [api.py:9] {{"prompt": "{SHORT_PROMPT}", "token_ids": [{TOKEN_IDS}]}}
INFO 11-29 10:00:04 [logger.py:41] Generated response chatcmpl-77aa: output: "{ANSWER}", output_token_ids: [{TOKEN_IDS}]
"""

GATEWAY = "\n".join(
    json.dumps(row)
    for row in (
        {"ts": "2026-11-29T10:00:00Z", "path": "/v1/chat/completions", "status": 200, "ms": 12, "user": USER},
        {"messages": [{"role": "user", "content": PROMPT}], "api_key": PLAIN_SECRET, "n": 1},
        {"note": PROMPT, "prompt_token_ids": SPARE_TOKEN_IDS, "ids": SPARE_TOKEN_IDS, "host": HOST},
        {"headers": {"Authorization": f"Bearer {PLAIN_SECRET}", "Cookie": f"s={PASSWORD}"}, "nested": {"text": PROMPT}},
    )
)

PY_SPY_TEXT = f"""\
Process 4711: sglang::scheduler_TP0
Python v3.12.3 (/usr/bin/python3.12)

Thread 4711 (idle): "MainThread"
    recv_requests (sglang/srt/managers/scheduler.py:1088)
        Arguments:
            self: <Scheduler at 0x7f00>
            prompt: "{SHORT_PROMPT}"
        Locals:
            recv_reqs: ["{SHORT_PROMPT}", "{PROMPT}"]
            token: "{PLAIN_SECRET}"
    event_loop (/home/{USER}/sglang/srt/managers/scheduler.py:960)
Thread 4712 (idle): "{SHORT_PROMPT}"
    wait (threading.py:355)
"""

PY_SPY_JSON = json.dumps(
    [
        {
            "pid": 4711, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 4711, "active": False,
            "owns_gil": False,
            "frames": [
                {
                    "name": "recv_requests", "filename": f"/home/{USER}/sglang/srt/managers/scheduler.py",
                    "module": None, "short_filename": "scheduler.py", "line": 1088,
                    "locals": [{"name": "prompt", "repr": f'"{PROMPT}"', "arg": True}],
                }
            ],
            "process_info": {"pid": 4711, "command_line": f"python -m sglang.launch_server --api-key {PLAIN_SECRET}"},
        }
    ]
)  # fmt: skip

GDB = f"""\
Thread 1 (Thread 0x7f1bf0e6a740 (LWP 4711) "python3"):
#0  0x00007f1b6fb19c3d in poll () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f1b6fb19c3e in tokenize (text="{PROMPT}", length=46) at tokenizer.cc:17
#2  0x00007f1b6fb19c3f in encode (input=0x7f00 "{SHORT_PROMPT}") at tokenizer.cc:20
"""

NCCL = f"""\
{HOST}:4711:4711 [0] NCCL INFO Bootstrap: Using eth0:{ADDRESS}<0>
{HOST}:4711:4711 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:{ADDRESS}<0>
{HOST}:4711:4811 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x7f0 recvbuff 0x7f0 count 8 \
datatype 9 op 0 root 0 comm 0x55 [nranks=2] stream 0x66
{HOST}:4711:4811 [0] NCCL WARN socket to {DOMAIN} of {USER} closed, local GID {GUID} gpu {GPU_UUID}
"""

ENVIRON = (
    f"NCCL_DEBUG=INFO\0NCCL_SOCKET_IFNAME=eth0\0HF_TOKEN={HUB_TOKEN}\0OPENAI_API_KEY={PLAIN_SECRET}\0"
    f"DATABASE_PASSWORD={PASSWORD}\0USER={USER}\0PS1={SHORT_PROMPT}\0VLLM_API_KEY={PROVIDER_KEY}\0"
)
PS = f"""\
USER         PID    PPID STAT COMMAND
{USER}     4711       1 Ssl  python -m sglang.launch_server --model-path /data/{CUSTOMER}/llm \
--api-key {PLAIN_SECRET} --tp 2
root        4712    4711 Rl   sglang::scheduler_TP0
root        4713    4711 S    curl -H "Authorization: Bearer {PLAIN_SECRET}" -d '{{"prompt":"{PROMPT}"}}' http://{DOMAIN}/
"""
PROMETHEUS = f"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{model_name="{CUSTOMER}",engine_type="unified",host="{HOST}"}} 4.0
sglang:last{{prompt="{SHORT_PROMPT}"}} 1.0
"""
KERNEL = f"""\
[  100.000000] Linux version 6.8.0 (builder@{HOST}) #1 SMP
[  200.000000] Out of memory: Killed process 4711 (python3) total-vm:100kB, anon-rss:100kB
[  201.000000] mlx5_core 0000:3b:00.0 mlx5_0: GUID {GUID} port 1 of {HOST}
"""
DOCKER = "\n".join(
    json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-11-29T10:00:00.000000000Z", "attrs": {"u": USER}})
    for line in SGLANG.splitlines()
)
JOURNAL = "\n".join(
    json.dumps(
        {
            "__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1791558000146650", "_BOOT_ID": "6f0e", "_HOSTNAME": HOST,
            "_PID": "4711", "_TRANSPORT": "stdout", "_CMDLINE": f"x --api-key {PLAIN_SECRET}", "MESSAGE": line,
        }
    )
    for line in VLLM.splitlines()
)  # fmt: skip
CRI = "\n".join(f"2026-11-29T10:00:00.000000000Z stdout F {line}" for line in VLLM.splitlines())
NOTES = f"""\
Dear colleague, {PROMPT}.
ssh {USER}@{HOST} and use the password: {PASSWORD}
then ask {MAIL}; answer was {ANSWER}
"""

SOURCES = {
    "sglang.log": SGLANG, "vllm.log": VLLM, "gateway.jsonl": GATEWAY, "pyspy.txt": PY_SPY_TEXT,
    "pyspy.json": PY_SPY_JSON,
    "gdb.txt": GDB, f"nccl.{HOST}.4711.log": NCCL, "environ": ENVIRON, "ps.txt": PS, "scrape.prom": PROMETHEUS,
    "dmesg.txt": KERNEL, "docker.log": DOCKER, "journal.json": JOURNAL, "pod.log": CRI, "notes.txt": NOTES,
    f"{USER}-{CUSTOMER}.txt": NOTES, "body.json": json.dumps({"messages": [{"content": PROMPT}], "x": PROMPT}),
}  # fmt: skip


def plant(folder: Path) -> Path:
    """Write all sources below `folder`; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SOURCES.items():
        (folder / name).write_text(text if text.endswith(("\n", "\0")) else text + "\n")
    return folder
