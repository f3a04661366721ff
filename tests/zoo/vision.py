"""Vision: models of the transformers library, made from small configurations."""

import transformers as hub

from zoo.net import Net, normal
from zoo.text import IDS

PICTURES = {"pixel_values": normal(8, 3, 32, 32)}
PATCHES = {
    "image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "num_labels": 10,
}  # fmt: skip
TOWER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
STAGES = {"hidden_sizes": [16, 32], "depths": [2, 2], "num_labels": 10}

VISION: dict[str, Net] = {
    "ViT": Net(lambda: hub.ViTForImageClassification(hub.ViTConfig(**PATCHES)), PICTURES),
    "BEiT": Net(
        lambda: hub.BeitForImageClassification(hub.BeitConfig(**PATCHES, use_relative_position_bias=True)), PICTURES
    ),
    "DINOv2": Net(
        lambda: hub.Dinov2ForImageClassification(
            hub.Dinov2Config(**{k: v for k, v in PATCHES.items() if k != "intermediate_size"}, mlp_ratio=2)
        ),
        PICTURES,
    ),
    "Swin": Net(
        lambda: hub.SwinForImageClassification(
            hub.SwinConfig(
                image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=10
            )
        ),
        PICTURES,
    ),
    "ConvNeXt": Net(lambda: hub.ConvNextForImageClassification(hub.ConvNextConfig(**STAGES, num_stages=2)), PICTURES),
    "ConvNeXt V2": Net(
        lambda: hub.ConvNextV2ForImageClassification(hub.ConvNextV2Config(**STAGES, num_stages=2)), PICTURES
    ),
    "ResNet": Net(
        lambda: hub.ResNetForImageClassification(hub.ResNetConfig(**STAGES, embedding_size=16, layer_type="basic")),
        PICTURES,
    ),
    "RegNet": Net(
        lambda: hub.RegNetForImageClassification(
            hub.RegNetConfig(**(STAGES | {"hidden_sizes": [32, 64]}), embedding_size=16, groups_width=16)
        ),
        PICTURES,
    ),
    "MobileNetV2": Net(
        lambda: hub.MobileNetV2ForImageClassification(hub.MobileNetV2Config(depth_multiplier=0.25, num_labels=10)),
        PICTURES,
    ),
    "EfficientNet": Net(
        lambda: hub.EfficientNetForImageClassification(
            hub.EfficientNetConfig(
                image_size=32,
                width_coefficient=0.5,
                depth_coefficient=0.5,
                hidden_dim=640,
                num_labels=10,
                in_channels=[32, 16],
                out_channels=[16, 24],
                kernel_sizes=[3, 3],
                strides=[1, 2],
                num_block_repeats=[1, 2],
                expand_ratios=[1, 6],
                depthwise_padding=[],
            )
        ),
        PICTURES,
    ),
    "PoolFormer": Net(
        lambda: hub.PoolFormerForImageClassification(
            hub.PoolFormerConfig(
                hidden_sizes=[16, 32],
                depths=[2, 2],
                num_encoder_blocks=2,
                patch_sizes=[7, 3],
                strides=[4, 2],
                padding=[2, 1],
                mlp_ratio=2.0,
                num_labels=10,
            )
        ),
        PICTURES,
    ),
    "SegFormer": Net(
        lambda: hub.SegformerForSemanticSegmentation(
            hub.SegformerConfig(
                num_encoder_blocks=2,
                depths=[1, 1],
                sr_ratios=[2, 1],
                hidden_sizes=[16, 32],
                patch_sizes=[7, 3],
                strides=[4, 2],
                num_attention_heads=[2, 4],
                mlp_ratios=[2, 2],
                decoder_hidden_size=32,
                num_labels=10,
            )
        ),
        PICTURES,
        "values",
    ),
    "CLIP": Net(
        lambda: hub.CLIPModel(
            hub.CLIPConfig(
                text_config={**TOWER, "vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": 2},
                vision_config={**TOWER, "image_size": 32, "patch_size": 8},
                projection_dim=16,
            )
        ),
        {"input_ids": IDS.repeat(2, 1), **PICTURES},
    ),
    "LeViT": Net(
        lambda: hub.LevitForImageClassification(
            hub.LevitConfig(
                image_size=64,
                hidden_sizes=[16, 24, 32],
                num_attention_heads=[2, 3, 4],
                depths=[1, 1, 1],
                key_dim=[8, 8, 8],
                attention_ratio=[2, 2, 2],
                mlp_ratio=[2, 2, 2],
                num_labels=10,
            )
        ),
        {"pixel_values": normal(8, 3, 64, 64)},
        caches=True,
    ),
}
