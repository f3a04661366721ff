"""An adapter as a folder of the PEFT library, which is never imported: LoRA of one condition."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from hyperfan.errors import CallError, CheckpointError
from hyperfan.files import atomic_write, explain_write_errors, write_json, write_tensors
from hyperfan.generators.generator import LowRankUpdate

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT puts before the names of a model's layers."""
CAUSAL_LM = "CAUSAL_LM"
TASK_TYPES = {
    "ForCausalLM": CAUSAL_LM,
    "LMHeadModel": CAUSAL_LM,
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
"""PEFT's names for what a model does, by what transformers puts in the name of its class."""


def save_adapter(
    net: "HyperNet",
    path: str | os.PathLike[str],
    updates: Mapping[str, LowRankUpdate] | None,
    overwrite: bool,
) -> None:
    """Write low-rank updates B·A of the mainnet's weights; α/r is in B, so that PEFT's own factor is 1.

    A weight that is stored as (in, out) has the update Aᵀ·Bᵀ, which PEFT calls ``fan_in_fan_out``.
    """
    folder = Path(path)
    if updates is None:
        raise CallError(
            "save_adapter() writes low-rank updates, of heads=hyperfan.LoRA(…). Of a PEFT model, whose adapter is "
            "generated: with net.bound(…) as model: model.save_pretrained(folder)"
        )
    if (folder / CONFIG).exists() and not overwrite:
        raise CheckpointError(f"{folder} already holds an adapter: pass overwrite=True to replace it")
    tensors: dict[str, Tensor] = {}
    transposed = set()
    for t in net.generated:
        layer, update = net.mainnet.get_submodule(t.layer), updates.get(t.name)
        if update is None or len(t.shape) != 2 or isinstance(layer, nn.Embedding):
            raise CallError(
                f"'{t.name}' is generated, the {t.role} of {t.kind}, which save_adapter() cannot write: build the net "
                "with generate= of the weights of linear layers alone"
            )
        if t.role != "weight":
            raise CallError(
                f"it is not known whether '{t.name}' is stored as (out, in) or (in, out), which an adapter must say: "
                "build the net with example=, inputs on which its layer runs"
            )
        b, a = update
        if b.ndim > 2 or a.ndim > 2:
            raise CallError("save_adapter() writes one adapter: pass one task or one embedding, not one per sample")
        transposed.add(t.in_first)
        tensors[f"{PREFIX}{t.layer}.lora_A.weight"], tensors[f"{PREFIX}{t.layer}.lora_B.weight"] = a, b
    if len(transposed) > 1:
        raise CallError("some weights are stored as (in, out) and some as (out, in), for which PEFT has no one setting")
    config = {
        "peft_type": "LORA",
        "task_type": task_type(net.mainnet),
        "base_model_name_or_path": str(getattr(getattr(net.mainnet, "config", None), "_name_or_path", "")) or None,
        "r": b.shape[1],
        "lora_alpha": b.shape[1],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": transposed.pop(),
        "target_modules": [t.layer for t in net.generated],
        "inference_mode": True,
    }
    with explain_write_errors(str(folder), "Make room, or choose another place", CheckpointError):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / WEIGHTS) as partial:
            write_tensors(partial, tensors)
        write_json(folder / CONFIG, config)


def task_type(mainnet: nn.Module) -> str | None:
    """PEFT's name for what a mainnet does, by the name of its class; ``None`` if that does not tell."""
    return next((task for part, task in TASK_TYPES.items() if part in type(mainnet).__name__), None)
