#!/usr/bin/env bash
# Installs SGLang 0.5.23 for the CPU into a virtual environment of its own; prints its folder as the last line.
# WHERE_ONLY=1 prints the folder and installs nothing.
set -euo pipefail
source "$(dirname "$0")/venv.sh"
begin sglang "$0"

# SGLang's own requirements pin a GPU build of torch and its kernels, so it is installed without them and given what
# its server needs on a CPU.
$PIP install packaging torch==2.13.0
$PIP install --no-deps sglang==0.5.23
$PIP install \
    aiohttp anthropic apache-tvm-ffi==0.1.11 blobfile==3.0.0 build compressed-tensors==0.18.0 dill distro easydict \
    einops fastapi gguf interegular IPython 'llguidance>=1.7.6,<2' mistral_common modelscope msgspec multiprocess \
    ninja numba==0.65.1 numpy nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4 orjson partial_json_parser pillow \
    prometheus-client psutil py-spy pybase64 pydantic python-dateutil python-multipart pyzmq regex requests scipy \
    sentencepiece==0.2.1 setproctitle soundfile==0.13.1 tiktoken tokenizers==0.23.2 tqdm transformers==5.19.0 uvicorn \
    uvloop watchfiles xxhash zstandard
$PIP install --no-deps outlines==0.1.11 triton==3.9.0 xgrammar==0.2.7

"$VENV/bin/python" "$HERE/make_model.py" "$VENV/model" --layers 16 --hidden 512
finish
