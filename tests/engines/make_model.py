# mypy: ignore-errors
"""Makes a small Llama with random weights and a byte-level tokenizer, without any download. Run by an engine's Python.

16 layers of 512 take about 20 ms a step on one core: slow enough that the processes of an engine share two cores, fast
enough for a steady stream.
"""

import argparse
import email.message
import json.decoder
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte pairs learned from the standard library's own text."""
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    texts = [Path(str(module.__file__)).read_text() for module in (argparse, email.message, json.decoder)]
    pairs.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=pairs, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = CHAT
    return fast


def model(layers: int, hidden: int) -> LlamaForCausalLM:
    """Random weights, the same on every run."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=max(hidden // 4, 32),
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def main() -> None:
    """`make_model.py FOLDER --layers N --hidden N`."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--layers", type=int, default=16)
    arguments.add_argument("--hidden", type=int, default=512)
    given = arguments.parse_args()
    tokenizer().save_pretrained(given.folder)
    model(given.layers, given.hidden).save_pretrained(given.folder, safe_serialization=True)


if __name__ == "__main__":
    main()
