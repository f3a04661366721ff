"""The names of all nets, and the ten of them that are held out.

The list was written before any of the new nets was tried, and the rule picks ten that nobody chose: of the names that
were not tested before, those whose SHA-256 comes first. They are tried once everything else is mended, and their first
score is kept.
"""

import hashlib

TESTED_BEFORE = (
    "Llama", "Qwen2", "Qwen3", "Mistral", "Gemma2", "T5", "T5, eager", "GPT-2", "BERT", "Mixtral", "Mamba", "Whisper",
    "GPT-NeoX",
)  # fmt: skip
"""Models of the transformers library that rules were made for."""

NEW = (
    # text
    "ALBERT", "BART", "BLOOM", "Cohere", "DeBERTa-v2", "DeepSeek-V3", "DistilBERT", "Falcon", "FNet", "Gemma3", "GPT-J",
    "GPT-OSS", "Granite", "ModernBERT", "MPT", "OLMo2", "OPT", "Phi", "Switch Transformers", "XLNet",
    # state spaces and other recurrences
    "Mamba-2", "RWKV", "RecurrentGemma", "Jamba", "LFM2",
    # vision
    "ViT", "BEiT", "DINOv2", "Swin", "ConvNeXt", "ConvNeXt V2", "ResNet", "RegNet", "MobileNetV2", "EfficientNet",
    "PoolFormer", "SegFormer", "CLIP", "LeViT",
    # audio and series
    "Wav2Vec2", "HuBERT", "AST", "EnCodec", "HiFi-GAN", "PatchTST", "PatchTSMixer",
    # torch's own layers
    "nn.Transformer", "nn.TransformerEncoder, norm first", "LSTM", "GRU, both ways", "RNN", "Bilinear",
    # well-known blocks, written out
    "VGG", "U-Net", "DenseNet", "SE-ResNet", "ResNeXt", "MLP-Mixer", "HyperMixer", "gMLP", "WaveNet", "PointNet",
    "Deep Sets", "SIREN", "NeRF", "RealNVP", "GCN", "GAT", "KAN", "DeepONet", "DCGAN", "Highway",
)  # fmt: skip

HELD_OUT_COUNT = 10


def held_out() -> tuple[str, ...]:
    """The new names whose SHA-256 comes first."""
    ordered = sorted(NEW, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return tuple(sorted(ordered[:HELD_OUT_COUNT]))


HELD_OUT = held_out()
