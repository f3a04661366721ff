"""The Trainer of the transformers library, and accelerate, with a hypernet as the model."""

import accelerate
import pytest
import torch
import transformers as hub

import hyperfan as hf
from hyperfan.hypernet import SaveConfig
from hyperfan.hypernet.saving import TRAINER_STATE
from zoo.text import GROUPED, IDS

ROWS = [
    {
        "input_ids": IDS[i % 4],
        "labels": IDS[i % 4].clone(),
        "task": i % 3,
        "nonsense": 1.0,
        "attention_mask": IDS[0] >= 0,
    }
    for i in range(8)
]
for row in ROWS[::3]:
    row["labels"][:5] = -100  # so that samples have unequal numbers of tokens


def make_net():
    torch.manual_seed(0)
    model = hub.LlamaForCausalLM(hub.LlamaConfig(**GROUPED)).eval()
    model.requires_grad_(False)
    embedding = hf.Embedding(8, tasks=3, trainable=True, per="net")
    net = hf.HyperNet(model, embedding, generate="*.[qv]_proj.weight", example={"input_ids": IDS}, heads=hf.LoRA(2))
    torch.manual_seed(1)
    for p in net.heads.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return model, net


def train(folder, net, *, resume=None, callbacks=(), **kwargs):
    settings = {"max_steps": 4, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "logging_steps": 1} | kwargs
    args = hub.TrainingArguments(
        output_dir=str(folder), report_to="none", use_cpu=True, save_steps=2, eval_strategy="steps", eval_steps=2,
        disable_tqdm=True, seed=3, dataloader_pin_memory=False, **settings,
    )  # fmt: skip
    trainer = hub.Trainer(net, args, train_dataset=ROWS, eval_dataset=ROWS[:4], callbacks=list(callbacks))
    trainer.remove_callback(hub.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def batch_of(rows):
    return {
        "input_ids": torch.stack([row["input_ids"] for row in rows]),
        "labels": torch.stack([row["labels"] for row in rows]),
    }


def token_loss(net, rows):
    """The mean over all predicted tokens of a batch, sample by sample."""
    losses, tokens = 0.0, 0
    for row in rows:
        count = int((row["labels"][1:] != -100).sum())
        losses += net(**batch_of([row]), task=row["task"]).loss * count
        tokens += count
    return losses / tokens


@pytest.fixture(autouse=True)
def _own_accelerator():
    """accelerate keeps one state in a process, its precision too, which the next test would have."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_training_evaluation_and_logged_losses(tmp_path):
    """Columns of the data set are kept if the mainnet or the net takes them, and losses are those of all tokens."""
    _, net = make_net()
    before = token_loss(net, ROWS).item()
    trainer = train(tmp_path, net, per_device_train_batch_size=8, learning_rate=0.0, max_steps=2)
    logs = trainer.state.log_history
    assert [log["loss"] for log in logs if "loss" in log] == pytest.approx([before] * 2, rel=1e-4)
    assert [log["eval_loss"] for log in logs if "eval_loss" in log] == pytest.approx(
        [token_loss(net, ROWS[:4]).item()], rel=1e-4
    )
    net.train()
    losses = [log["loss"] for log in train(tmp_path / "more", net, max_steps=20).state.log_history if "loss" in log]
    assert losses[-1] < losses[0] - 0.1


def test_lower_precision(tmp_path):
    """Layers run in bfloat16, parameters stay as they are. Without oneDNN, whose kernels not every CPU has."""
    before, seen = torch._C._get_mkldnn_enabled(), set()
    _, net = make_net()
    layer = net.mainnet.model.layers[0].self_attn.q_proj
    layer.register_forward_hook(lambda _layer, _inputs, out: seen.add(out.dtype))
    expected = token_loss(net, ROWS[:4]).item()
    seen.clear()
    torch._C._set_mkldnn_enabled(False)
    try:
        logs = train(tmp_path, net, bf16=True, learning_rate=0.0, max_steps=2).state.log_history
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert seen == {torch.bfloat16}
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert [log["eval_loss"] for log in logs if "eval_loss" in log] == pytest.approx([expected], rel=2**-7)


def test_gradient_accumulation_divides_by_all_tokens(tmp_path):
    found = []
    for size, steps in ((8, 1), (2, 4)):
        _, net = make_net()
        train(tmp_path / str(size), net, max_steps=1, per_device_train_batch_size=size,
              gradient_accumulation_steps=steps, optim="sgd", max_grad_norm=0.0)  # fmt: skip
        found.append(torch.cat([p.detach().flatten() for p in net.heads.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_a_checkpoint_resumes_and_can_be_read(tmp_path):
    model, net = make_net()
    train(tmp_path, net, callbacks=[SaveConfig()], gradient_checkpointing=True)
    expected = token_loss(net.eval(), ROWS)
    checkpoint = tmp_path / "checkpoint-2"
    assert (checkpoint / TRAINER_STATE).exists()  # by which a checkpoint is known where SaveConfig was left out
    _, other = make_net()
    train(tmp_path / "other", other, resume=str(checkpoint), callbacks=[SaveConfig()])
    assert torch.equal(token_loss(other.eval(), ROWS), expected)
    read = hf.HyperNet.from_pretrained(tmp_path / "checkpoint-4", model).eval()
    assert torch.equal(token_loss(read, ROWS), expected)
    assert (checkpoint / "model.safetensors").stat().st_size < 1.3 * 4 * sum(
        p.numel() for p in net.parameters()
    ) - 4 * (sum(p.numel() for p in net.mainnet.parameters()))


def test_the_signature_is_that_of_both():
    import inspect

    _, net = make_net()
    names = list(inspect.signature(net.forward).parameters)
    assert {"input_ids", "attention_mask", "labels", "task", "embedding", "counts", "kwargs"} <= set(names)
    plain = hf.HyperNet(torch.nn.Linear(3, 2), 4)
    assert list(inspect.signature(plain.forward).parameters)[:2] == ["input", "task"]


def test_losses_of_each_sample_or_of_the_batch():
    _, net = make_net()
    tasks = torch.tensor([row["task"] for row in ROWS])
    each = net(**batch_of(ROWS), task=tasks).loss
    expected = [net(**batch_of([row]), task=row["task"]).loss for row in ROWS]
    torch.testing.assert_close(each, torch.stack(expected))
    count = (batch_of(ROWS)["labels"][:, 1:] != -100).sum()
    loss = net(**batch_of(ROWS), task=tasks, num_items_in_batch=count).loss
    torch.testing.assert_close(loss, token_loss(net, ROWS))


@pytest.mark.parametrize("optimiser", [torch.optim.AdamW, hf.AdamW])
def test_accelerate_prepares_a_net(optimiser):
    _, net = make_net()
    _, plain = make_net()
    accelerator = accelerate.Accelerator(cpu=True)
    opt = optimiser(net.parameters() if optimiser is torch.optim.AdamW else net, lr=1e-2)
    prepared, wrapped = accelerator.prepare(net, opt)
    reference = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    for _ in range(2):
        for model, step in ((prepared, wrapped), (plain, reference)):
            step.zero_grad()
            loss = model(**batch_of(ROWS[:3]), task=torch.tensor([0, 1, 2])).loss.mean()
            accelerator.backward(loss) if model is prepared else loss.backward()
            step.step()
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert accelerator.unwrap_model(prepared) is net
