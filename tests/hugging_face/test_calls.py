"""Language models of the transformers library, called as their users do: masks, caches, checkpoints, generation."""

import itertools

import pytest
import torch
import transformers as hub
from small_models import make, pattern

import hyperfan as hf
from checks import assert_close
from products import covered
from zoo.text import GROUPED, IDS

MASK = torch.ones_like(IDS)
MASK[0, 9:], MASK[2, 7:] = 0, 0  # two of four samples have padding, so that they do not agree on whether there is some
TASKS = [1, 3, 0, 2]
MASKED = [
    (name, attention)
    for name in ("Llama", "Qwen2", "Qwen3", "Mistral", "Gemma2", "GPT-2", "BERT", "T5")
    for attention in ("sdpa", "eager")
    if (name, attention) != ("Gemma2", "sdpa")  # which it does not support
]


def lora(name="Llama", attention=None, **kwargs):
    """A hypernet around a model in float64, with updates that are not zero."""
    model, example = make(name)
    if attention is not None:
        model.set_attn_implementation(attention)
    embedding = hf.Embedding(8, tasks=4, trainable=True, per="net")
    net = hf.HyperNet(model.double(), embedding, generate=pattern(name), example=example, heads=hf.LoRA(4), **kwargs)
    torch.manual_seed(1)
    for p in net.heads.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return net.eval(), example


def of_rows(batch, rows):
    return {k: x[rows] if isinstance(x, torch.Tensor) else x for k, x in batch.items()}


@pytest.mark.parametrize(
    ("name", "attention", "grouped"),
    covered([(*masked, grouped) for masked in MASKED for grouped in (False, True)], tuple),
)
def test_masks_with_a_task_per_sample_or_group_equal_a_loop(name, attention, grouped):
    net, example = lora(name, attention)
    batch = {**example, "attention_mask": MASK}
    each, tasks = ([slice(0, 2), slice(2, 4)], TASKS[:2]) if grouped else ([slice(i, i + 1) for i in range(4)], TASKS)
    loop = torch.cat([net(**of_rows(batch, r), task=t).logits for r, t in zip(each, tasks, strict=True)])
    given = of_rows(batch, torch.arange(4).view(2, 2)) if grouped else batch
    out = net(**given, task=torch.tensor(tasks), **({"grouped": True} if grouped else {})).logits
    assert_close(out.flatten(0, 1) if grouped else out, loop)
    assert set(net.per_sample.mixing.values()) == {None}
    source = net.embeddings.stored[0]
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), source) for y in (out, loop)), strict=True):
        assert_close(a, b)


def test_rows_without_padding_run_with_the_others():
    """Whether a mask can be left out, which transformers asks for, differs between them."""
    net, example = lora()
    calls = []
    net.mainnet.get_input_embeddings().register_forward_hook(lambda *_: calls.append(1))
    for _ in range(2):
        net(**example, attention_mask=MASK, task=torch.tensor(TASKS))
    assert {bool(row.all()) for row in MASK} == {True, False}
    assert len(calls) == 2


def test_cached_keys_and_values_are_ordinary_tensors():
    net, _ = lora()
    cache = net(IDS, task=torch.tensor(TASKS), attention_mask=MASK).past_key_values
    for i, task in enumerate(TASKS):
        one = net(IDS[i : i + 1], task=task, attention_mask=MASK[i : i + 1]).past_key_values
        for ours, theirs in zip(cache.layers, one.layers, strict=True):
            assert_close(ours.keys[i] + 0, theirs.keys[0])
            assert_close(ours.values[i] + 0, theirs.values[0])


CALLS = {"each": {}, "grouped": {"grouped": True}, "counts": {"counts": (1, 3)}}


@pytest.mark.parametrize(
    ("name", "given", "how"), covered(list(itertools.product(["Llama", "GPT-2"], [True, False], CALLS)), tuple)
)
def test_greedy_decoding_with_a_cache_in_place_equals_a_loop_without_one(name, given, how):
    net, _ = lora(name)
    tasks, rows = (TASKS, [1] * 4) if how == "each" else (TASKS[:2], [2, 2] if how == "grouped" else [1, 3])
    ids, steps = IDS[:, :5], 3
    expected = []
    for task, its in zip(tasks, ids.split(rows), strict=True):
        for _ in range(steps):
            logits = net(its, task=task, use_cache=False).logits[:, -1]
            its = torch.cat([its, logits.argmax(-1, keepdim=True)], 1)
        expected.append((its, logits))

    def call(x, cache):
        x = x.view(2, 2, -1) if how == "grouped" else x
        out = net(x, task=torch.tensor(tasks), past_key_values=cache, use_cache=True, **CALLS[how])
        return out.logits[..., -1, :].flatten(0, -2), out.past_key_values

    cache = hub.DynamicCache(config=net.config) if given else None
    found = ids
    for step in range(steps):
        logits, returned = call(found if step == 0 else found[:, -1:], cache)
        cache = returned if cache is None else cache
        assert cache is returned
        found = torch.cat([found, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(found, torch.cat([its for its, _ in expected]))
    assert_close(logits, torch.cat([last for _, last in expected]))
    assert cache.get_seq_length() == 5 + steps - 1
    assert not {reason for key, reason in net.per_sample.mixing.items() if "rows" not in key} - {None}


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_a_cache_of_fixed_size_is_refused_with_one_that_works():
    net, _ = lora()
    cache = hub.StaticCache(config=net.config, max_cache_len=16)
    with pytest.raises(hf.HyperfanError, match=r"one place for all of them: .* a cache that grows, as .* DynamicCache"):
        net(IDS, task=torch.tensor(TASKS), past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_masked_groups_of_unequal_size_equal_a_loop(attention):
    """Real tokens are as in a loop over tasks, whatever groups are run together."""
    net, example = lora("Llama", attention)
    rows, batch = torch.tensor([0, 1, 1, 2, 3, 3, 3, 2]), of_rows({**example, "attention_mask": MASK}, [*range(4)] * 2)
    order = rows.argsort(stable=True)
    out = net(**batch, task=torch.tensor(TASKS), code_index=rows).logits
    sorted_out = net(**of_rows(batch, order), task=torch.tensor(TASKS), counts=rows.bincount()).logits
    for code, task in enumerate(TASKS):
        its = rows == code
        expected = net(**of_rows(batch, its), task=task).logits
        assert_close(out[its], expected)
        assert_close(sorted_out[its[order]], expected)


def test_a_loss_with_groups_of_unequal_size_says_how_to_go_on():
    net, _ = lora()
    with pytest.raises(hf.HyperfanError, match=r"without labels=, or .* embedding=codes.repeat_interleave"):
        net(IDS, labels=IDS, task=torch.tensor([0, 1]), counts=(3, 1))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("task", [1, torch.tensor(TASKS)], ids=["one", "each"])
def test_gradient_checkpointing(reentrant, task):
    net, example = lora()
    net.train()

    def gradients():
        net.zero_grad()
        net(**example, attention_mask=MASK, task=task).logits.square().sum().backward()
        return [p.grad for p in net.parameters() if p.grad is not None]

    expected = gradients()
    net.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert net.is_gradient_checkpointing
    for ours, theirs in zip(gradients(), expected, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("beams", [1, 2])
def test_generation_in_bound(beams):
    net, _ = lora()
    how = {"max_new_tokens": 4, "num_beams": beams, "do_sample": False, "pad_token_id": 0, "attention_mask": MASK}
    with net.bound(task=2) as model:
        text = model.generate(IDS, **how)
    assert torch.equal(text, net.freeze(task=2).generate(IDS, **how))
    assert text.shape == (4, 16)
    with pytest.raises(hf.HyperfanError, match=r"with net\.bound\(task=…\) as model: model\.generate\(…\)"):
        net.generate(IDS, max_new_tokens=5)


def test_attributes_of_the_model():
    net, _ = lora()
    assert net.config.hidden_size == 32
    assert (net.device, net.dtype) == (torch.device("cpu"), torch.float64)
    assert net.get_input_embeddings() is net.mainnet.model.embed_tokens


def test_a_model_alone_is_as_before():
    """Building and calling a net changes nothing in the model."""
    torch.manual_seed(0)
    model = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)).eval()
    before = model(IDS).logits
    net = hf.HyperNet(model, hf.Embedding(8, tasks=2), generate="*.q_proj.weight", example={"input_ids": IDS})
    with net.bound(task=1) as bound:
        bound(IDS)
    assert torch.equal(model(IDS).logits, before)


def test_a_saved_net_is_read_around_a_model_on_the_meta_device(tmp_path):
    """With the frequencies of its positions, which are in no state_dict."""
    model, example = make("Llama")
    net = hf.HyperNet(model, hf.Embedding(8, tasks=2), generate="*.q_proj.weight", example=example)
    net.save_pretrained(tmp_path)
    with torch.device("meta"):
        empty = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)).eval()
    read = hf.HyperNet.from_pretrained(tmp_path, empty)
    assert torch.equal(read(**example, task=1).logits, net(**example, task=1).logits)


def test_a_diagnosis_on_a_batch_with_labels():
    net, example = lora()
    seen = hf.diagnose(net, {**example, "labels": IDS}, task=1)
    assert seen.loss == pytest.approx(net(**example, labels=IDS, task=1).loss.item(), rel=1e-6)


def test_updates_of_a_frozen_model_are_not_blamed_for_its_gradients():
    """Of a Llama as the library draws it the gradient of the embedding is 340 times that of the head."""
    model, example = make("Llama")
    embedding = hf.Embedding(8, tasks=4, trainable=True, per="net")
    net = hf.HyperNet(
        model.requires_grad_(False), embedding, generate=pattern("Llama"), heads=hf.LoRA(2), example=example
    )
    assert not hf.diagnose(net, {**example, "labels": IDS}, task=1).findings
    assert "share=0.1 of A" in repr(net)


def test_a_frozen_pretrained_bias_beside_a_generated_weight_is_kept():
    model, example = make("Qwen2")
    model.requires_grad_(False)
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.q_proj.bias)
        layer.self_attn.q_proj.weight.requires_grad_(True)
    net = hf.HyperNet(model, hf.Embedding(8, tasks=2), example=example)
    assert [t.name.rpartition(".layers.")[2] for t in net.generated] == [f"{i}.self_attn.q_proj.weight" for i in (0, 1)]
    bias = "model.layers.0.self_attn.q_proj.bias"
    assert torch.equal(net.mainnet.get_parameter(bias), model.get_parameter(bias))
