"""Models of the PEFT library as mainnets, and LoRA of one condition as its folders."""

import copy
import inspect
import json

import peft
import pytest
import safetensors.torch
import torch
import transformers as hub
from small_models import make
from torch import nn

import hyperfan as hf
from zoo.text import GROUPED, IDS, ONE

KINDS = {
    "LoRA": peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    "DoRA": peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", use_dora=True),
    "IA3": peft.IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"
    ),
}
TASKS = hf.Embedding(8, tasks=3, trainable=True)


def adapted(kind):
    torch.manual_seed(0)
    return peft.get_peft_model(hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)), KINDS[kind]).eval()


def storages(module):
    """Bytes of each storage by its address."""
    tensors = [*module.parameters(), *module.buffers()]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}


@pytest.mark.parametrize("kind", ["LoRA", "DoRA"])
def test_what_peft_trains_is_generated_and_starts_as_the_base(kind):
    model = adapted(kind)
    net = hf.HyperNet(model, TASKS, example=ONE)
    assert len(net.generated) == 8
    assert all("lora_A" in t.name or "lora_B" in t.name for t in net.generated)
    assert torch.equal(net(**ONE, task=1).logits, model(**ONE).logits)
    net(**ONE, task=1).logits.square().mean().backward()
    moved = {name for name, p in net.heads.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name.rpartition(".")[0] for name in moved} == {"32x4-constant", "16x4-constant"}  # those of B
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    opt.step()
    net.zero_grad()
    net(**ONE, task=1).logits.square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in net.heads.parameters())


def test_gains_of_ia3_start_at_one():
    model = adapted("IA3")
    net = hf.HyperNet(model, TASKS, example=ONE, generate="*ia3_l*")
    assert len(net.generated) == 6
    assert torch.equal(net(**ONE, task=1).logits, model(**ONE).logits)
    with pytest.raises(hf.HyperfanError, match="no parameter that is trained has that role"):
        hf.HyperNet(model, TASKS, example=ONE)


@pytest.mark.parametrize("kind", ["LoRA", "DoRA"])
def test_a_pattern_of_the_adapter_starts_as_the_base(kind):
    """DoRA's magnitudes, which are norms of the base, are trained as they are."""
    model = adapted(kind)
    net = hf.HyperNet(model, TASKS, example=ONE, generate="*lora_*")
    assert len(net.generated) == 8
    assert torch.equal(net(**ONE, task=1).logits, model(**ONE).logits)
    a = net.generate(task=1)["base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"]
    assert 0.5 < a.var().item() * 32 < 2
    seen = hf.diagnose(net, {**ONE, "labels": IDS}, task=1)
    assert not [f for f in seen.findings if f.severity != "note"]
    assert seen.loss == pytest.approx(model(**ONE, labels=IDS).loss.item(), rel=1e-3)


def test_the_base_is_held_once(tmp_path):
    model = adapted("LoRA")
    net = hf.HyperNet(model, TASKS, example=ONE)
    own = {p: n for p, n in storages(net).items() if p not in storages(model)}
    trained = sum(p.numel() * p.element_size() for p in net.parameters() if p.requires_grad)
    assert sum(own.values()) < 1.2 * trained
    net.save_pretrained(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    assert file.stat().st_size < trained + 20_000  # names
    read = hf.HyperNet.from_pretrained(tmp_path, model)
    assert torch.equal(read(**ONE, task=2).logits, net(**ONE, task=2).logits)
    changed = copy.deepcopy(net)
    changed.save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / file.name).stat().st_size == file.stat().st_size
    frozen = changed.mainnet.get_submodule("base_model.model.lm_head").weight
    nn.init.zeros_(frozen)
    changed.save_pretrained(tmp_path / "changed")
    (with_frozen,) = (tmp_path / "changed").glob("*.safetensors")
    assert with_frozen.stat().st_size > file.stat().st_size + frozen.numel()  # what was written to is no longer theirs


def test_an_adapter_that_is_generated_can_be_saved_by_peft(tmp_path):
    model = adapted("LoRA")
    net = hf.HyperNet(model, TASKS, example=ONE)
    for p in net.heads.parameters():
        nn.init.normal_(p, std=0.2)
    with net.bound(task=1) as bound:
        bound.save_pretrained(tmp_path)
    torch.manual_seed(0)
    base = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED))
    read = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    assert torch.equal(read(**ONE).logits, net(**ONE, task=1).logits)


def one_step(net, example, vector):
    """Train the heads once, so that updates are not zero."""
    out = net(**example, embedding=vector) if isinstance(example, dict) else net(example, embedding=vector)
    getattr(out, "logits", out).square().mean().backward()
    torch.optim.Adam(net.heads.parameters(), lr=0.05).step()


class Subclass(nn.Linear):
    pass


class Model(nn.Sequential):
    config = None


@pytest.mark.parametrize("layer", [nn.Linear, Subclass, hub.pytorch_utils.Conv1D])
def test_a_square_weight_is_saved_the_right_way_round(tmp_path, layer):
    torch.manual_seed(0)
    model, x, vector = Model(layer(6, 6), nn.Tanh(), nn.Linear(6, 6)).eval(), torch.randn(5, 6), torch.randn(8)
    condition = hf.Embedding(8, given=True, per="net")
    net = hf.HyperNet(model, condition, generate="0.weight", heads=hf.LoRA(2), example=x)
    one_step(net, x, vector)
    net.save_adapter(tmp_path, embedding=vector)
    expected, before = net(x, embedding=vector), model(x)
    read = peft.PeftModel.from_pretrained(model, tmp_path)
    torch.testing.assert_close(read(x), expected)
    assert not torch.allclose(expected, before)


def test_a_weight_of_which_nobody_knows_how_it_is_stored_is_not_saved(tmp_path):
    model = nn.Sequential(hub.pytorch_utils.Conv1D(6, 6))
    net = hf.HyperNet(model, TASKS, generate="0.weight", heads=hf.LoRA(2), init="m2")
    with pytest.raises(hf.HyperfanError, match=r"whether '0.weight' is stored as .* build the net with example="):
        net.save_adapter(tmp_path / "a", task=1)


@pytest.mark.parametrize(("name", "core"), [("Llama", False), ("Llama", True), ("GPT-2", False), ("GPT-2", True)])
def test_lora_of_one_condition_is_a_folder_of_peft(tmp_path, name, core):
    model, example = make(name)
    pattern = {"Llama": "*.[qv]_proj.weight", "GPT-2": ["*.c_attn.weight", "*.mlp.c_proj.weight"]}[name]
    embedding = hf.Embedding(8, given=True, per="net")
    net = hf.HyperNet(model, embedding, generate=pattern, heads=hf.LoRA(4, alpha=8, core=core), example=example).eval()
    torch.manual_seed(1)
    vector = torch.randn(8)
    one_step(net, example, vector)
    net.save_adapter(tmp_path, embedding=vector)
    made = net.generate(embedding=vector)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["fan_in_fan_out"], config["task_type"]) == (4, name == "GPT-2", "CAUSAL_LM")
    expected, before = net(**example, embedding=vector).logits, model(**example).logits
    with pytest.raises(hf.HyperfanError, match="pass overwrite=True"):
        net.save_adapter(tmp_path, embedding=vector)
    with pytest.raises(hf.HyperfanError, match="one task or one embedding"):
        net.save_adapter(tmp_path, embedding=torch.randn(2, 8), overwrite=True)
    read = peft.PeftModel.from_pretrained(model, tmp_path).eval()
    for tensor, value in safetensors.torch.load_file(tmp_path / "adapter_model.safetensors").items():
        assert torch.equal(read.get_parameter(tensor.replace(".weight", ".default.weight")), value)
    if name == "Llama" and not core:  # where both compute W·x + B·(A·x), with matrices that lie alike
        assert torch.equal(read(**example).logits, expected)
    torch.testing.assert_close(read(**example).logits, expected)
    assert not torch.allclose(expected, before)
    merged = dict(read.merge_and_unload().named_parameters())
    for tensor, value in made.items():
        torch.testing.assert_close(merged[tensor], value)


def test_other_heads_are_no_adapter(tmp_path):
    model, example = make("Llama")
    net = hf.HyperNet(model, TASKS, example=example, generate="*.q_proj.weight")
    with pytest.raises(hf.HyperfanError, match=r"^save_adapter\(\) writes low-rank updates"):
        net.save_adapter(tmp_path / "a", task=1)
    net = hf.HyperNet(model, TASKS, example=example, generate=["*.q_proj.weight", "*norm.weight"], heads=hf.LoRA(2))
    with pytest.raises(hf.HyperfanError, match="the scale of LlamaRMSNorm, which save_adapter"):
        net.save_adapter(tmp_path / "a", task=1)
    assert not list(tmp_path.iterdir())


# ── bad input: one line, and nothing is changed ─────────────────────────────────────────────────────────────────────


def refused(match, build):
    with pytest.raises(hf.HyperfanError, match=match) as error:
        build()
    assert "\n" not in str(error.value)


def test_a_pattern_of_frozen_weights():
    model = adapted("LoRA")
    before = {name: p.clone() for name, p in model.named_parameters()}
    pattern = "*.q_proj.base_layer.weight"
    refused("matches only frozen parameters, such as .* heads=hyperfan.LoRA", lambda: hf.HyperNet(
        model, TASKS, example=ONE, generate=pattern))  # fmt: skip
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert hf.HyperNet(model, TASKS, example=ONE, generate=pattern, heads=hf.LoRA(2)).generated


def test_a_pattern_of_quantised_weights():
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(x @ self.weight.to(x).T / 4)

    for kwargs in ({}, {"heads": hf.LoRA(2)}):
        refused("torch.int8|only frozen", lambda kwargs=kwargs: hf.HyperNet(
            Quantised(), TASKS, example=torch.randn(3, 4), generate="weight", **kwargs))  # fmt: skip


def test_a_model_without_a_task_type_shows_its_arguments_and_is_read_without_an_example(tmp_path):
    torch.manual_seed(0)
    base = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)).eval()
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"])).eval()
    net = hf.HyperNet(model, hf.Embedding(8, given=True, per="net"), trunk=(8,), example=ONE)
    assert {"input_ids", "labels", "embedding"} <= set(inspect.signature(net.forward).parameters)
    net.save_pretrained(tmp_path)
    read, vector = hf.HyperNet.from_pretrained(tmp_path, model), torch.randn(8)
    for name, value in net.generate(embedding=vector).items():
        assert torch.equal(read.generate(embedding=vector)[name], value)


def test_lora_of_a_model_that_has_an_adapter():
    with pytest.raises(hf.HyperfanError, match=r"the mainnet has one already, whose '.*lora_A.*' would.*model.unload"):
        hf.HyperNet(adapted("LoRA"), TASKS, heads=hf.LoRA(2), example=ONE)


def test_an_adapter_of_another_rank(tmp_path):
    hf.HyperNet(adapted("LoRA"), TASKS, example=ONE).save_pretrained(tmp_path)
    other = peft.get_peft_model(
        hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    )
    shapes = "lora_A.default.weight' is of shape .4, 32. there and of shape .2, 32."
    refused(shapes, lambda: hf.HyperNet.from_pretrained(tmp_path, other))


def test_a_vector_of_the_wrong_size_and_an_unknown_module():
    model, example = make("Llama")
    embedding = hf.Embedding(8, given=True, per="net")
    net = hf.HyperNet(model, embedding, example=example, generate="*.q_proj.weight", heads=hf.LoRA(2))
    refused("8", lambda: net(**example, embedding=torch.randn(7)))
    refused("8", lambda: net(**example, embedding=torch.randn(4, 7)))
    refused("matches no .* for whole names, as '\\*.q_proj.weight', which matches 2, such as", lambda: hf.HyperNet(
        model, embedding, example=example, generate=["q_proj"]))  # fmt: skip
    refused(r"LoRA\(…, sharing='separate'\)", lambda: hf.HyperNet(
        model, embedding, example=example, generate="*.q_proj.weight", heads=hf.LoRA(2, sharing="shared")))  # fmt: skip
    refused(
        "matches no parameter.*and 13 more$",
        lambda: hf.HyperNet(model, embedding, example=example, generate="*.query.weight"),
    )
