"""Small models of the transformers library, made from their configurations; nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import peft
import torch
import transformers as hub
from torch import nn

IDS = torch.randint(0, 64, (4, 12), generator=torch.Generator().manual_seed(0))
ONE = {"input_ids": IDS, "use_cache": False}
BOTH = {**ONE, "decoder_input_ids": IDS}
SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = SIZES | {"intermediate_size": 64, "max_position_embeddings": 64}
GROUPED = WIDE | {"num_key_value_heads": 2}
EACH_SIDE = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 64))}
SEQ2SEQ = EACH_SIDE | {"vocab_size": 64, "d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


def _whisper() -> nn.Module:
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    positions = {"max_source_positions": 16, "max_target_positions": 32, "num_mel_bins": 8}
    return hub.WhisperForConditionalGeneration(hub.WhisperConfig(**SEQ2SEQ, **tokens, **positions))


def _gpt2() -> nn.Module:
    return hub.GPT2LMHeadModel(hub.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64))


def lora() -> nn.Module:
    """A Llama with an adapter on each of its linear layers."""
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)), config)


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "Llama": (lambda: hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)), ONE, "*.[qv]_proj.weight"),
    "Qwen2": (lambda: hub.Qwen2ForCausalLM(hub.Qwen2Config(**GROUPED)), ONE, "*.[qv]_proj.weight"),
    "Qwen3": (lambda: hub.Qwen3ForCausalLM(hub.Qwen3Config(**GROUPED, head_dim=8)), ONE, "*.[qv]_proj.weight"),
    "Mistral": (lambda: hub.MistralForCausalLM(hub.MistralConfig(**GROUPED)), ONE, "*.[qv]_proj.weight"),
    "Gemma2": (
        lambda: hub.Gemma2ForCausalLM(hub.Gemma2Config(**GROUPED, head_dim=8, query_pre_attn_scalar=8)),
        ONE,
        "*.[qv]_proj.weight",
    ),
    "T5": (lambda: hub.T5ForConditionalGeneration(hub.T5Config(**T5)), BOTH, "*Attention.[qv].weight"),
    "T5, eager": (
        lambda: hub.T5ForConditionalGeneration(hub.T5Config(**T5, attn_implementation="eager")),
        BOTH,
        "*Attention.[qv].weight",
    ),
    "GPT-2": (_gpt2, ONE, "*.c_attn.weight"),
    "BERT": (lambda: hub.BertForMaskedLM(hub.BertConfig(**WIDE)), {"input_ids": IDS}, "*.query.weight"),
    "Mixtral": (
        lambda: hub.MixtralForCausalLM(hub.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2)),
        ONE,
        "*.experts.*",
    ),
    "Mamba": (
        lambda: hub.MambaForCausalLM(hub.MambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2)),
        ONE,
        "*.in_proj.weight",
    ),
    "Whisper": (
        _whisper,
        {"input_features": torch.randn(4, 8, 32), "decoder_input_ids": IDS, "use_cache": False},
        "*.[qv]_proj.weight",
    ),
    "GPT-NeoX, parallel": (lambda: hub.GPTNeoXForCausalLM(hub.GPTNeoXConfig(**WIDE)), ONE, "*.query_key_value.weight"),
}
"""Name → how it is made, an example of its inputs, and a pattern of what one would generate."""


def make(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in eval mode, always with the same values, and its example."""
    torch.manual_seed(0)
    build, example, _ = MODELS[name]
    return build().eval(), example
