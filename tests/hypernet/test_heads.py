"""Linear heads, shared and separate, with every kind of embedding and trunk."""

from typing import ClassVar

import pytest
import torch
from generator_suite import Case, GeneratorSuite, identity_of
from torch import Tensor, nn

import hyperfan as hf


def oracle(net: hf.HyperNet, task=None, embedding=None, noise=None) -> dict[str, Tensor]:
    """One tensor at a time, by the definition W = H·(c·h(e)) + β."""
    assert not noise
    made = {}
    for i, tensor in enumerate(net.generated):
        e = net.embeddings.weight if embedding is None else embedding
        if task is not None:
            own = net.embeddings.task_parameters
            picked = [own[int(i)] if int(i) in own else e[int(i)] for i in torch.as_tensor(task).flatten()]
            e = torch.stack(picked) if isinstance(task, Tensor) else picked[0]
        if net.embeddings.config.per == "tensor":
            e = e[..., i, :]
        elif embedding is None:
            e = e[..., 0, :]
        for identity in identity_of(net, i, i):
            e = torch.cat([e, identity.expand(*e.shape[:-1], -1)], -1)
        h = e if net.trunk is None else net.trunk(e.reshape(-1, e.shape[-1])).reshape(*e.shape[:-1], -1)
        if net.embeddings.config.normalise:
            h = h / h.square().mean(-1, keepdim=True).sqrt()
        head = net.heads.head(net.heads.names[i])
        flat = torch.einsum("...k,kp->...p", h * net.heads.scale[i], head.weight) + head.bias
        made[tensor.name] = flat.reshape(*e.shape[:-1], *tensor.shape)
    return made


def trunk(size: int, width: int = 7) -> nn.Module:
    return nn.Sequential(nn.Linear(size, 9), nn.GELU(), nn.Linear(9, width), nn.LayerNorm(width))


def case(embedding, call=dict, module=None, **options) -> Case:
    def make(mainnet: nn.Module) -> hf.HyperNet:
        tensor = next(mainnet.parameters())
        inner = None if module is None else trunk(6).to(tensor.device, tensor.dtype)
        return hf.HyperNet(mainnet, embedding, **({"trunk": inner} if inner else {}), **options)

    return Case(make, oracle, call)


def given(*shape):
    return lambda: {"embedding": torch.randn(*shape, generator=torch.Generator().manual_seed(2))}


class TestHeads(GeneratorSuite):
    GRAPHS = ("everything", "tasks-per-net", "given-per-sample")
    BACKWARD_GRAPHS = ("everything", "given-per-sample")
    TRAINING_GRAPH = True
    CASES: ClassVar = {
        "fixed": case(6),
        "separate": case(6, heads="separate"),
        "biases": case(6, generate="weights+biases"),
        "everything": case(6, generate="*"),
        "some": case(6, generate=["0.weight", "6.*"], init="hyperfan-out", fidelity="paper", distribution="normal"),
        "classical": case(6, init="kaiming-fan-out", trunk=(5,)),
        "trainable": case(hf.Embedding(6, trainable=True)),
        "noise": case(hf.Embedding(6, noise=0.3)),
        "per-net": case(hf.Embedding(6, per="net")),
        "tasks": case(hf.Embedding(6, tasks=3, trainable=True), call=lambda: {"task": 2}),
        "tasks-per-net": case(hf.Embedding(6, tasks=3, per="net", trainable=True), lambda: {"task": 2}, trunk=(8,)),
        "tasks-per-sample": case(hf.Embedding(6, tasks=3), call=lambda: {"task": torch.tensor([0, 2, 1, 2])}),
        "given": case(hf.Embedding(6, given=True), call=given(4, 6)),
        "given-per-net": case(hf.Embedding(6, given=True, per="net"), call=given(6), trunk=(16, 16)),
        "given-per-sample": case(hf.Embedding(6, given=True, per="net"), call=given(4, 6), trunk=(8,)),
        "normalised": case(hf.Embedding(6, trainable=True, normalise=True), trunk=(8,)),
        "mlp": case(hf.Embedding(6, trainable=True), trunk=(8, 7)),
        "module": case(6, module=trunk, generate="weights+biases"),
        "normalised-module": case(hf.Embedding(6, given=True, normalise=True, per="net"), call=given(6), module=trunk),
    }  # fmt: skip


def test_vmap_with_a_trunk_and_grad_inside():
    embedding = hf.Embedding(5, given=True, per="net", normalise=True)
    net = hf.HyperNet(nn.Sequential(nn.Linear(3, 2)), embedding, trunk=(4,))
    x, many = torch.randn(4, 3), torch.randn(6, 5)

    def loss(e):
        return net(x, embedding=e).square().sum()

    together = torch.func.vmap(torch.func.grad(loss))(many)
    one_by_one = torch.stack([torch.func.grad(loss)(e) for e in many])
    torch.testing.assert_close(together, one_by_one)


def test_a_shared_head_has_the_variance_that_its_tensors_need_on_average():
    """What a code is longer or shorter than the others is made up for by its tensor's scale, around 1."""
    net = hf.HyperNet(nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 9)), 5)
    first, second = (row for row in net.plan.rows if row.made_by == "head")
    assert first.moment != second.moment
    expected = (first.target + second.target) / (first.moment + second.moment)
    assert first.variance == second.variance == pytest.approx(expected)
