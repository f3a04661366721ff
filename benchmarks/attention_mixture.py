"""How far the plan's rule for what attention puts out is from what it does, by length of text, beside other rules.

Eight language models of the transformers library, each with 4 layers of width 64, all their weights generated, start on
random tokens. What each layer's output projection reads, a mixture of values of mean square 1, is set against the
rule's prediction. A rule may know the number of positions, whether each sees only those before it, and no data.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers as hub
from torch import nn

import hyperfan as hf
from benchmarks.harness import main, store
from hyperfan.formulas.gains import attention_mean_square

LENGTHS, STARTS, BATCH, VOCABULARY = (16, 64, 512), 3, 2, 1000
WIDTH, HIDDEN, HEADS, LAYERS = 64, 128, 4, 4
COMMON = {
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": max(LENGTHS),
    "vocab_size": VOCABULARY,
}
TABLES = {"vocab_size": VOCABULARY, "max_position_embeddings": max(LENGTHS)}
OPT = {"hidden_size": WIDTH, "ffn_dim": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS}
DISTILLED = {"dim": WIDTH, "hidden_dim": HIDDEN, "n_heads": HEADS, "n_layers": LAYERS}
SPECIAL = dict.fromkeys([f"{kind}_token_id" for kind in ("pad", "bos", "eos", "cls", "sep")], 0)
NETS: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "Llama": ("Llama:CausalLM", COMMON, "o_proj", True),
    "Qwen3": ("Qwen3:CausalLM", {**COMMON, "num_key_value_heads": HEADS, "head_dim": 16}, "o_proj", True),
    "GPT-NeoX": ("GPTNeoX:CausalLM", COMMON, "attention.dense", True),
    "OPT": ("OPT:CausalLM", {**TABLES, **OPT, "word_embed_proj_dim": WIDTH}, "out_proj", True),
    "Phi": ("Phi:CausalLM", COMMON, "self_attn.dense", True),
    "BERT": ("Bert:MaskedLM", COMMON, "attention.output.dense", False),
    "DistilBERT": ("DistilBert:MaskedLM", {**TABLES, **DISTILLED}, "out_lin", False),
    "ModernBERT": ("ModernBert:MaskedLM", {**COMMON, **SPECIAL}, "attn.Wo", False),
}
"""Class, configuration, the output projection's name, and whether positions see only those before them."""


def independent(keys: int, causal: bool) -> float:
    """Mean square where all values are independent; under a causal mask, of positions with 1, 2, … keys."""
    counts = range(1, keys + 1) if causal else [keys]
    return sum(attention_mean_square(k) ** 2 for k in counts) / len(counts)


def correlated(c: float) -> Callable[[int, bool], float]:
    """Values of which the share c is the same at all positions."""
    return lambda keys, causal: c + (1 - c) * independent(keys, causal)


RULES: dict[str, Callable[[int, bool], float]] = {
    "geometric mean of the bounds": lambda keys, _: attention_mean_square(keys),
    "the same, with a causal mask": lambda keys, causal: math.sqrt(independent(keys, causal)),
    "the same, at least 0.1": lambda keys, _: max(attention_mean_square(keys), 0.1),
    **{f"share {c} of values alike": correlated(c) for c in (0.05, 0.1, 0.2)},
}


def mixtures(name: str, length: int) -> list[float]:
    """What the output projection of each layer reads, in mean square: geometric mean over starts."""
    kind, config, projection, _ = NETS[name]
    family, head = kind.split(":")
    model = getattr(hub, f"{family}For{head}")(getattr(hub, f"{family}Config")(**config))
    torch.manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (BATCH, length))
    net = hf.HyperNet(model, 16, example={"input_ids": ids}).eval()
    read: list[float] = []

    def hook(_layer: nn.Module, inputs: Any, _output: Any) -> None:
        read.append(math.log(inputs[0].square().mean().item()))

    for path, module in net.mainnet.named_modules():
        if path.endswith(projection):
            module.register_forward_hook(hook)
    for seed in range(STARTS):
        torch.manual_seed(seed)
        net.reset_parameters()
        with torch.no_grad():
            net(input_ids=ids)
    return [math.exp(sum(read[i::LAYERS]) / STARTS) for i in range(LAYERS)]


def run() -> bool:
    """Measure, print and store; there is no limit."""
    found = {name: {n: mixtures(name, n) for n in LENGTHS} for name in NETS}
    table: dict[str, dict[int, dict[str, float]]] = {}
    for rule, predict in RULES.items():
        for n in LENGTHS:
            off = [math.log(x / predict(n, NETS[name][3])) for name in NETS for x in found[name][n]]
            typical = math.exp(math.sqrt(sum(e * e for e in off) / len(off)))
            numbers = {"typical": typical, "worst": math.exp(max(map(abs, off))), "layers": len(off)}
            table.setdefault(rule, {})[n] = numbers
        print(f"{rule}: {', '.join(_words(table[rule]))}", flush=True)
    claim = "factor by which the mean square of attention's output is off its prediction, by number of tokens"
    store("attention_mixture", {"claim": claim, "rules": table, "mean_squares": found})
    return True


def _words(numbers: dict[int, dict[str, float]]) -> Iterator[str]:
    for n, each in numbers.items():
        yield f"{n} tokens ×{each['typical']:.2f}, worst ×{each['worst']:.1f}"


if __name__ == "__main__":
    main("attention_mixture", run)
