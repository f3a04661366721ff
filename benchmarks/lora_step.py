"""Training a hypernet that makes LoRA of a small Llama, against the same hypernet written by hand with hooks.

By hand, as in Text-to-LoRA: a task's vector, joined with trained vectors of layer and module, goes through a trunk; a
head of each factor of each module makes A and B of all layers; hooks on the projections add (α/r)·B·(A·x) by two
batched products.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import hyperfan as hf
from benchmarks.harness import Times, compare_times, conclude, interleave, main, peak_bytes, pooled

CLAIM = (
    "a training step with 8 tasks × 4 samples × 32 tokens (Llama of 4 layers and width 128, LoRA of rank 8 on q and v, "
    "a trunk of 512, heads for each module), hf.AdamW, takes at most 1.1 times that of a hypernet by hand with hooks "
    "and batched products, torch's fused AdamW"
)
BUILDING = (
    "building such a net for a Llama of width {} needs at most 1.2 times the bytes of its own parameters beside the "
    "frozen model, at peak"
)
LIMIT, MOST_BYTES, LARGE_WIDTH = 1.1, 1.2, 512
TASKS, SAMPLES, TOKENS, VOCABULARY = 8, 4, 32, 256
LAYERS, WIDTH, RANK, ALPHA = 4, 128, 8, 16
CONDITION, IDENTITY, TRUNK = 256, {"layer": 16, "module": 16}, 512
MODULES = ("q_proj", "v_proj")
FACTORS = ("A", "B")


def llama(width: int = WIDTH) -> LlamaForCausalLM:
    """A frozen model with values of its own."""
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=LAYERS, use_cache=False, **sizes)
    return LlamaForCausalLM(config).requires_grad_(False)


def by_hyperfan(model: nn.Module) -> hf.HyperNet:
    return hf.HyperNet(
        model,
        hf.Embedding(CONDITION, given=True, per="net", identity=IDENTITY),
        generate=[f"*.{module}.weight" for module in MODULES],
        heads=hf.LoRA(RANK, ALPHA, sharing="module"),
        trunk=(TRUNK,),
        example={"input_ids": torch.zeros(1, TOKENS, dtype=torch.long)},
    )


class ByHand(nn.Module):
    """The hypernet and its model, with a hook on each projection."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.layer = nn.Parameter(torch.randn(LAYERS, IDENTITY["layer"]))
        self.module = nn.Parameter(torch.randn(len(MODULES), IDENTITY["module"]))
        self.trunk = nn.Sequential(nn.Linear(CONDITION + sum(IDENTITY.values()), TRUNK), nn.ReLU())
        self.heads = nn.ModuleDict({f"{m}-{f}": nn.Linear(TRUNK, RANK * WIDTH) for m in MODULES for f in FACTORS})
        self.factors: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        for i, block in enumerate(model.model.layers):
            for name in MODULES:
                block.self_attn.get_submodule(name).register_forward_hook(self._hook((name, i)))

    def _hook(self, key: tuple[str, int]) -> Callable[..., Tensor]:
        def hook(_layer: nn.Module, inputs: tuple[Tensor], out: Tensor) -> Tensor:
            a, b = self.factors[key]
            x = inputs[0].reshape(len(a), -1, inputs[0].shape[-1])
            return out + torch.bmm(torch.bmm(x, a.mT), b.mT).view_as(out) * (ALPHA / RANK)

        return hook

    def forward(self, condition: Tensor, **batch: Any) -> Any:
        n = len(condition)
        parts = (condition[:, None, None], self.layer[:, None], self.module)
        codes = self.trunk(torch.cat([p.expand(n, LAYERS, len(MODULES), p.shape[-1]) for p in parts], -1))
        for m, name in enumerate(MODULES):
            a = self.heads[f"{name}-A"](codes[:, :, m]).view(n, LAYERS, RANK, WIDTH)
            b = self.heads[f"{name}-B"](codes[:, :, m]).view(n, LAYERS, WIDTH, RANK)
            self.factors |= {(name, i): (a[:, i], b[:, i]) for i in range(LAYERS)}
        return self.model(**batch)


@torch.no_grad()
def start_alike(hand: ByHand, net: hf.HyperNet) -> None:
    """Let both have the same values, and B values of its own."""
    net.heads.scale.fill_(1.0)  # which by hand is in no way part of the update
    hand.layer.copy_(net.embeddings.identity_layer)
    hand.module.copy_(net.embeddings.identity_module)
    hand.trunk.load_state_dict(net.trunk.state_dict())
    for key, head in hand.heads.items():
        made = net.heads.head(f"*/self_attn/{key.replace('-', '/weight-')}")
        if key.endswith("B"):
            nn.init.normal_(made.weight, std=1e-2)
        head.weight.copy_(made.weight.T)
        head.bias.copy_(made.bias)


def job(grouped: bool) -> dict[str, Callable[[], object]]:
    """Steps of both on the same data."""
    torch.manual_seed(0)
    model = llama()
    net, hand = by_hyperfan(model), ByHand(copy.deepcopy(model))
    start_alike(hand, net)
    ids = torch.randint(VOCABULARY, (TASKS * SAMPLES, TOKENS))
    condition = torch.randn(TASKS, CONDITION)
    if not grouped:
        condition = condition.repeat_interleave(SAMPLES, 0)
    its = ids.view(TASKS, SAMPLES, TOKENS) if grouped else ids

    def ours() -> Tensor:
        return net(input_ids=its, labels=its, embedding=condition, grouped=grouped).loss.mean()

    def theirs() -> Tensor:
        return hand(condition, input_ids=ids, labels=ids).loss

    torch.testing.assert_close(ours(), theirs(), rtol=1e-5, atol=1e-5)
    trained = [p for p in hand.parameters() if p.requires_grad]
    settings = {"lr": 1e-4, "fused": True}
    optimisers = {
        "ours": (hf.AdamW(net, **settings), ours),
        "torch_adamw": (torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], **settings), ours),
        "theirs": (torch.optim.AdamW(trained, **settings), theirs),
    }

    def step(opt: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> None:
        opt.zero_grad()
        loss().backward()
        opt.step()

    return {name: partial(step, *pair) for name, pair in optimisers.items()}


def measure(rounds: str) -> dict[str, Times]:
    """Seconds of each step in this process."""
    return {name: interleave(job(grouped), int(rounds)) for name, grouped in (("grouped", True), ("per_sample", False))}


def run(rounds: int = 40, processes: int = 3) -> bool:
    runs = pooled("lora_step", rounds, processes)
    each = [(name, [times[name] for times in runs]) for name in runs[0]]
    holds = [compare_times(f"lora_step_{name}", f"{CLAIM}, {name}", times, LIMIT) for name, times in each]
    return all([*holds, building()])


def building() -> bool:
    """Whether a net is built in little more memory than its parameters take, and the model not copied."""
    widths = {"lora_building": LARGE_WIDTH, "lora_building_small": WIDTH}
    holds = [_built(name, width) for name, width in widths.items()]
    return all(holds)


def _built(name: str, width: int) -> bool:
    model = llama(width)
    by_hyperfan(llama())  # for what is remembered from the first net on
    made: list[hf.HyperNet] = []
    peak = peak_bytes(lambda: made.append(by_hyperfan(model)))
    own, base = (
        sum(p.numel() * p.element_size() for p in parameters)
        for parameters in ([p for p in made[0].parameters() if p.requires_grad], model.parameters())
    )
    more = {"bytes": {"peak": peak, "parameters": own, "model": base}}
    claim = BUILDING.format(width)
    return conclude(f"{name}_memory", claim, "bytes at peak", {"median": peak / own}, MOST_BYTES, more)


if __name__ == "__main__":
    main("lora_step", run, measure)
