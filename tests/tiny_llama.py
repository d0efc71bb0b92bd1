"""A tiny model of transformers, made on the spot, for tests where that library is installed."""

from pathlib import Path
from typing import Any

import pytest
import torch

# As instruct models have them: the first text of a prompt (or none), what ends a turn, other ends, the template.
CHATS: dict[str, tuple[str | None, str, list[str], str]] = {
    "ChatML": (  # Qwen
        None,
        "<|im_end|>",
        ["<|endoftext|>", "<|im_start|>"],
        "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
        "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
        "{%- endif %}",
    ),
    "headers": (  # Llama 3
        "<|begin_of_text|>",
        "<|eot_id|>",
        ["<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"],
        "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
        "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
        "{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ),
}


def save_tiny_llama(folder: Path, alphabet: str, chat: str | None = None) -> Path:
    """Save a Llama of two small layers and a tokenizer of single characters; the test is skipped without transformers.

    With ``chat`` it has the special tokens and the template of an instruct model, and declares two ends of sequence.
    """
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    begin, end, others, template = CHATS[chat] if chat else (None, "<eos>", [], None)
    special = ["<pad>", end, *others, *([begin] if begin else [])]
    vocabulary = {word: k for k, word in enumerate([*special, *alphabet])}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    plain.decoder = tokenizers.decoders.Fuse()
    named: dict[str, Any] = {"pad_token": "<pad>", "eos_token": end}
    if begin:
        plain.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, vocabulary[begin])]
        )
        named["bos_token"] = begin
    if chat:
        named |= {"additional_special_tokens": others, "chat_template": template}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **named)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=[1, 2] if chat else 1,
        bos_token_id=vocabulary[begin] if begin else None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
