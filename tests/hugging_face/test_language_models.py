"""Language models from the transformers library: what single ones need. The zoo tries all of them."""

import peft
import pytest
import torch
import transformers as hub

import hyperfan as hf
from hyperfan.mainnet import read
from zoo.names import TESTED_BEFORE
from zoo.nets import ZOO
from zoo.text import GROUPED, ONE

FACTOR = 2
"""What the mean square of a small layer may be off by: it has 32 inputs, and 12 tokens of a vocabulary of 64."""


def make(name):
    """A model, always with the same values, and its example."""
    return ZOO[name].make(), ZOO[name].example


def lora():
    """A Llama with an adapter on each of its linear layers."""
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)), config)


def mean_squares(model, example, layers):
    """Of the first output of each layer."""
    found = {}

    def keep(layer):
        def hook(module, args, out):
            out = out[0] if isinstance(out, tuple) else out
            found.setdefault(layer, out.double().square().mean().item())

        return hook

    handles = [model.get_submodule(layer).register_forward_hook(keep(layer)) for layer in layers]
    with torch.no_grad():
        model(**example)
    for handle in handles:
        handle.remove()
    return found


BLOCKS = dict.fromkeys(TESTED_BEFORE, 4) | {"T5": 10, "T5, eager": 10, "Whisper": 10, "Mamba": 2}


@pytest.mark.parametrize("name", TESTED_BEFORE)
def test_every_residual_branch_is_counted_once(name):
    assert {t.residual_blocks for t in read(*make(name))} == {0, BLOCKS[name]}


def test_low_rank_updates_are_no_residual_blocks():
    spec = read(lora().eval(), ONE)
    assert {t.residual_blocks for t in spec} == {0, 4}


# ---------------------------------------------------------------- what single models need


def test_gpt2_has_transposed_weights():
    spec = read(*make("GPT-2"))
    block = "transformer.h.0."
    fan_in = {name: spec[f"{block}{name}.weight"].fans.fan_in for name in ("attn.c_attn", "mlp.c_fc", "mlp.c_proj")}
    assert fan_in == {"attn.c_attn": 32, "mlp.c_fc": 32, "mlp.c_proj": 128}
    assert spec[block + "mlp.c_proj.bias"].weights == (block + "mlp.c_proj.weight",)
    assert sum(t.role in ("weight", "bias") for t in spec) == 2 + 2 * 8


def test_mixtrals_experts_have_the_fans_of_one():
    spec = read(*make("Mixtral"))
    found = {t.name.rpartition(".")[2]: t.fans.fan_in for t in spec if ".experts." in t.name}
    assert found == {"gate_up_proj": 32, "down_proj": 64}


@pytest.mark.parametrize("name", ["T5", "T5, eager"])
def test_t5_starts_its_queries_as_its_authors_do(name):
    """They divide by the size of a head, because the attention does not."""
    model, example = make(name)
    net = hf.HyperNet(model, 16, example=example)
    layers = [f"{side}.block.0.layer.0.SelfAttention.{p}" for side in ("encoder", "decoder") for p in "qkv"]
    own, ours = mean_squares(model, example, layers), mean_squares(net.freeze(), example, layers)
    for layer in layers:
        assert 1 / FACTOR < ours[layer] / own[layer] < FACTOR, layer


@pytest.mark.parametrize("kind", ["Llama", "T5, eager"])
def test_attention_starts_with_logits_of_unit_variance(kind):
    """With 12 tokens and unit logits, the entropy of attention is near log 12; without a √d it would be far below."""
    torch.manual_seed(0)
    if kind == "Llama":
        model = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED, attn_implementation="eager")).eval()
        example = ONE
    else:
        model, example = make(kind)
    net = hf.HyperNet(model, 16, example=example).freeze()
    with torch.no_grad():
        out = net(**example, output_attentions=True)
    weights = out.attentions[0] if kind == "Llama" else out.encoder_attentions[0]
    last = weights[:, :, -1].double()  # a query that sees all tokens
    entropy = -(last * last.clamp_min(1e-12).log()).sum(-1).mean().item()
    # Of logits with variance σ² it is log T − σ²/2 to second order; T5 adds a bias of variance 1.
    expected = torch.log(torch.tensor(12.0)).item() - (0.5 if kind == "Llama" else 1.0)
    assert entropy == pytest.approx(expected, abs=0.4)


def test_mamba_keeps_its_time_constants():
    model, example = make("Mamba")
    net = hf.HyperNet(model, 16, example=example)
    generated = {t.name.split("mixer.")[-1] for t in net.generated if "mixer" in t.name}
    assert generated == {"in_proj.weight", "x_proj.weight", "out_proj.weight"}
    plain = net.freeze()
    for name in ("A_log", "D", "dt_proj.weight", "dt_proj.bias", "conv1d.weight"):
        path = f"backbone.layers.0.mixer.{name}"
        assert torch.equal(plain.get_parameter(path), model.get_parameter(path))


def test_a_pretrained_gain_counts():
    """The gains of a trained RMSNorm are far from 1, and what reads them starts so much larger."""
    model, example = make("Llama")
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight.uniform_(0.05, 0.15)
    net = hf.HyperNet(model, 16, example=example)
    layer = "model.layers.0.self_attn.q_proj"
    assert 1 / FACTOR < mean_squares(net.freeze(), example, [layer])[layer] < FACTOR


def test_a_model_on_the_meta_device_is_read_alike():
    """With a mask, because the library looks into the values of the inputs to make one."""
    model, example = make("Llama")
    example = example | {"attention_mask": torch.ones(4, 1, 12, 12, dtype=torch.bool).tril()}
    with torch.device("meta"):
        empty = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)).eval()
    assert read(empty, example) == read(model, example)
