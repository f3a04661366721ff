"""State spaces, recurrences, audio and time series: models of the transformers library from small configurations."""

import transformers as hub
from torch import nn
from torch.nn.utils.parametrize import remove_parametrizations

from zoo.net import Net, normal
from zoo.text import GROUPED, IDS, ONE, SEQ2SEQ, TOKENS, WIDE

SPEECH = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (8, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "vocab_size": 16,
}  # fmt: skip
WAVE = {"input_values": normal(4, 320)}
SERIES = {"past_values": normal(4, 32, 3)}
WHISPER = SEQ2SEQ | TOKENS | {"decoder_start_token_id": 1}
MEL = {"max_source_positions": 16, "max_target_positions": 32, "num_mel_bins": 8}


def _encodec_decoder() -> nn.Module:
    """With its weight norm written out, as the warning about parametrized weights advises."""
    codes = {"codebook_dim": 16, "codebook_size": 32, "target_bandwidths": [24.0]}
    config = hub.EncodecConfig(num_filters=8, hidden_size=16, upsampling_ratios=[4, 2], num_lstm_layers=1, **codes)
    decoder = hub.EncodecModel(config).decoder
    for module in decoder.modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
            remove_parametrizations(module, "weight")
    return decoder


SEQUENCES: dict[str, Net] = {
    "Mamba": Net(
        lambda: hub.MambaForCausalLM(hub.MambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2)),
        ONE,
        pattern="*.in_proj.weight",
    ),
    "Mamba-2": Net(
        lambda: hub.Mamba2ForCausalLM(
            hub.Mamba2Config(
                vocab_size=64,
                hidden_size=32,
                state_size=8,
                num_hidden_layers=2,
                num_heads=8,
                head_dim=8,
                n_groups=2,
                chunk_size=4,
            )
        ),
        ONE,
    ),
    "RWKV": Net(
        lambda: hub.RwkvForCausalLM(
            # Rescaling writes into the weights in evaluation mode.
            hub.RwkvConfig(
                vocab_size=64, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2, rescale_every=0
            )
        ),
        ONE,
    ),
    "RecurrentGemma": Net(
        lambda: hub.RecurrentGemmaForCausalLM(
            hub.RecurrentGemmaConfig(
                **(GROUPED | {"num_hidden_layers": 3, "num_key_value_heads": 1}), lru_width=32, attention_window_size=8
            )
        ),
        ONE,
    ),
    "Jamba": Net(
        lambda: hub.JambaForCausalLM(
            hub.JambaConfig(
                **(GROUPED | {"num_hidden_layers": 4}),
                attn_layer_period=2,
                attn_layer_offset=1,
                expert_layer_period=2,
                expert_layer_offset=1,
                num_experts=4,
                num_experts_per_tok=2,
                mamba_d_state=8,
                use_mamba_kernels=False,
            )
        ),
        ONE,
    ),
    "LFM2": Net(
        lambda: hub.Lfm2ForCausalLM(
            hub.Lfm2Config(**GROUPED, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)
        ),
        ONE,
    ),
    "Whisper": Net(
        lambda: hub.WhisperForConditionalGeneration(hub.WhisperConfig(**WHISPER, **MEL)),
        {"input_features": normal(4, 8, 32), "decoder_input_ids": IDS, "use_cache": False},
        pattern="*.[qv]_proj.weight",
    ),
    "Wav2Vec2": Net(lambda: hub.Wav2Vec2ForCTC(hub.Wav2Vec2Config(**SPEECH)), WAVE),
    "HuBERT": Net(
        lambda: hub.HubertForCTC(
            hub.HubertConfig(**SPEECH, feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True)
        ),
        WAVE,
    ),
    "AST": Net(
        lambda: hub.ASTForAudioClassification(
            hub.ASTConfig(
                **{k: v for k, v in WIDE.items() if k not in ("vocab_size", "max_position_embeddings")},
                patch_size=4,
                max_length=32,
                num_mel_bins=16,
                time_stride=4,
                frequency_stride=4,
                num_labels=10,
            )
        ),
        {"input_values": normal(4, 32, 16)},
    ),
    "EnCodec": Net(_encodec_decoder, normal(4, 16, 8), "values"),
    "HiFi-GAN": Net(
        lambda: hub.SpeechT5HifiGan(
            hub.SpeechT5HifiGanConfig(
                model_in_dim=16,
                upsample_initial_channel=32,
                upsample_rates=[4, 2],
                upsample_kernel_sizes=[8, 4],
                resblock_kernel_sizes=[3, 5],
                resblock_dilation_sizes=[[1, 3], [1, 3]],
            )
        ),
        normal(4, 16, 16),
        "values",
    ),
    "PatchTST": Net(
        lambda: hub.PatchTSTForPrediction(
            hub.PatchTSTConfig(
                num_input_channels=3,
                context_length=32,
                patch_length=4,
                patch_stride=4,
                prediction_length=8,
                d_model=32,
                num_attention_heads=4,
                num_hidden_layers=2,
                ffn_dim=64,
            )
        ),
        SERIES,
        "values",
    ),
    "PatchTSMixer": Net(
        lambda: hub.PatchTSMixerForPrediction(
            hub.PatchTSMixerConfig(
                num_input_channels=3,
                context_length=32,
                patch_length=4,
                patch_stride=4,
                prediction_length=8,
                d_model=32,
                num_layers=2,
            )
        ),
        SERIES,
        "values",
    ),
}
