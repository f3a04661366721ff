"""Text: models of the transformers library, made from small configurations; nothing is downloaded."""

import transformers as hub

from zoo.net import Net, integers

IDS = integers(64, 4, 12)
ONE = {"input_ids": IDS, "use_cache": False}
BOTH = {**ONE, "decoder_input_ids": IDS}
PLAIN = {"input_ids": IDS}
SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = SIZES | {"intermediate_size": 64, "max_position_embeddings": 64}
GROUPED = WIDE | {"num_key_value_heads": 2}
EACH_SIDE = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 64))}
SEQ2SEQ = EACH_SIDE | {"vocab_size": 64, "d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {"head_dim": 8}
QUERIES = "*.[qv]_proj.weight"
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}

TEXT: dict[str, Net] = {
    "Llama": Net(lambda: hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)), ONE, pattern=QUERIES),
    "Qwen2": Net(lambda: hub.Qwen2ForCausalLM(hub.Qwen2Config(**GROUPED)), ONE, pattern=QUERIES),
    "Qwen3": Net(lambda: hub.Qwen3ForCausalLM(hub.Qwen3Config(**GROUPED, **HEADS)), ONE, pattern=QUERIES),
    "Mistral": Net(lambda: hub.MistralForCausalLM(hub.MistralConfig(**GROUPED)), ONE, pattern=QUERIES),
    "Gemma2": Net(
        lambda: hub.Gemma2ForCausalLM(hub.Gemma2Config(**GROUPED, **HEADS, query_pre_attn_scalar=8)),
        ONE,
        pattern=QUERIES,
    ),
    "T5": Net(lambda: hub.T5ForConditionalGeneration(hub.T5Config(**T5)), BOTH, pattern="*Attention.[qv].weight"),
    "T5, eager": Net(
        lambda: hub.T5ForConditionalGeneration(hub.T5Config(**T5, attn_implementation="eager")),
        BOTH,
        pattern="*Attention.[qv].weight",
    ),
    "GPT-2": Net(lambda: hub.GPT2LMHeadModel(hub.GPT2Config(**GPT2)), ONE, pattern="*.c_attn.weight"),
    "BERT": Net(lambda: hub.BertForMaskedLM(hub.BertConfig(**WIDE)), PLAIN, pattern="*.query.weight"),
    "Mixtral": Net(lambda: hub.MixtralForCausalLM(hub.MixtralConfig(**GROUPED, **EXPERTS)), ONE, pattern="*.experts.*"),
    "GPT-NeoX": Net(lambda: hub.GPTNeoXForCausalLM(hub.GPTNeoXConfig(**WIDE)), ONE, pattern="*.query_key_value.weight"),
    "ALBERT": Net(lambda: hub.AlbertForMaskedLM(hub.AlbertConfig(**WIDE, embedding_size=16)), PLAIN),
    "BART": Net(
        lambda: hub.BartForConditionalGeneration(hub.BartConfig(**SEQ2SEQ, **TOKENS, max_position_embeddings=64)), BOTH
    ),
    "BLOOM": Net(
        lambda: hub.BloomForCausalLM(hub.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)), ONE
    ),
    "Cohere": Net(lambda: hub.CohereForCausalLM(hub.CohereConfig(**GROUPED, **TOKENS)), ONE),
    "DeBERTa-v2": Net(
        lambda: hub.DebertaV2ForMaskedLM(
            hub.DebertaV2Config(**WIDE, relative_attention=True, pos_att_type="p2c|c2p", type_vocab_size=0)
        ),
        PLAIN,
    ),
    "DeepSeek-V3": Net(
        lambda: hub.DeepseekV3ForCausalLM(hub.DeepseekV3Config(**WIDE, **LATENT, num_key_value_heads=4)), ONE
    ),
    "DistilBERT": Net(
        lambda: hub.DistilBertForMaskedLM(
            hub.DistilBertConfig(
                vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64
            )
        ),
        PLAIN,
    ),
    "Falcon": Net(lambda: hub.FalconForCausalLM(hub.FalconConfig(**SIZES)), ONE),
    "FNet": Net(lambda: hub.FNetForMaskedLM(hub.FNetConfig(**SIZES, intermediate_size=64)), PLAIN),
    "Gemma3": Net(
        lambda: hub.Gemma3ForCausalLM(hub.Gemma3TextConfig(**GROUPED, **HEADS, query_pre_attn_scalar=8)), ONE
    ),
    "GPT-J": Net(
        lambda: hub.GPTJForCausalLM(
            hub.GPTJConfig(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4)
        ),
        ONE,
    ),
    "GPT-OSS": Net(
        lambda: hub.GptOssForCausalLM(hub.GptOssConfig(**GROUPED, **EXPERTS, **HEADS, sliding_window=8)), ONE
    ),
    "Granite": Net(
        lambda: hub.GraniteForCausalLM(
            hub.GraniteConfig(
                **GROUPED,
                embedding_multiplier=12.0,
                residual_multiplier=0.22,
                logits_scaling=8.0,
                attention_multiplier=0.125,
            )
        ),
        ONE,
    ),
    "ModernBERT": Net(lambda: hub.ModernBertForMaskedLM(hub.ModernBertConfig(**WIDE, **TOKENS)), PLAIN),
    "MPT": Net(
        lambda: hub.MptForCausalLM(hub.MptConfig(vocab_size=64, d_model=32, n_heads=4, n_layers=2, max_seq_len=64)), ONE
    ),
    "OLMo2": Net(lambda: hub.Olmo2ForCausalLM(hub.Olmo2Config(**GROUPED)), ONE),
    "OPT": Net(
        lambda: hub.OPTForCausalLM(
            hub.OPTConfig(**SIZES, ffn_dim=64, max_position_embeddings=64, word_embed_proj_dim=32)
        ),
        ONE,
    ),
    "Phi": Net(lambda: hub.PhiForCausalLM(hub.PhiConfig(**WIDE)), ONE),
    "Switch Transformers": Net(
        lambda: hub.SwitchTransformersForConditionalGeneration(
            hub.SwitchTransformersConfig(
                **T5, num_decoder_layers=2, num_experts=4, expert_capacity=16, num_sparse_encoder_layers=1
            )
        ),
        BOTH,
    ),
    "XLNet": Net(
        lambda: hub.XLNetLMHeadModel(hub.XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64)), PLAIN
    ),
}
