"""The paper's mainnets have the paper's sizes; the small language model looks back only, and all of it is read."""

import pytest
import torch
from torch import nn

import hyperfan as hf
from hyperfan.models import Llama, all_cnn, mnist_net, mobilenet


def count(net):
    return sum(p.numel() for p in net.parameters())


def test_parameter_counts():
    assert count(mnist_net()) == 784 * 500 + 4 * 500 * 500 + 500 * 10 + 5 * 500 + 10
    assert count(mobilenet()) == 4_231_976
    assert sum(count(m) for m in mobilenet().modules() if isinstance(m, nn.BatchNorm2d)) == 21_888
    channels = [3, 96, 96, 96, 192, 192, 192, 192, 192, 10]
    kernels = [9] * 7 + [1, 1]
    expected = sum(a * b * k + b for a, b, k in zip(channels[:-1], channels[1:], kernels, strict=True))
    assert count(all_cnn()) == expected


@pytest.mark.parametrize(("net", "shape", "classes"), [
    (mnist_net, (784,), 10),
    (all_cnn, (3, 32, 32), 10),
    (lambda: mobilenet(7, width=0.25), (3, 64, 64), 7),
])  # fmt: skip
def test_they_run(net, shape, classes):
    assert net()(torch.randn(2, *shape)).shape == (2, classes)


def test_the_head_of_the_bayesian_mobilenet():
    """134.7 million weights for embeddings of 32, and depthwise layers with the fans of one group."""
    with torch.device("meta"):
        net = hf.HyperNet(mobilenet(), hf.Embedding(32, noise=0.5), heads="separate")
    heads = sum(head.weight.numel() for head in net.heads.children())
    assert heads == 32 * (4_231_976 - 21_888 - 1_000) == 134_690_816
    rows = {row.tensor: row for row in net.plan.rows}
    assert rows["1.0.weight"].fan_in == rows["1.0.weight"].fan_out == 9


def test_mobilenet_halves_the_image_where_the_paper_does():
    net = mobilenet(7, width=0.1).eval()
    x, sizes = torch.randn(1, 3, 224, 224), []
    for block in net[:14]:
        x = block(x)
        sizes.append(x.shape[-1])
    assert sizes == [112, 112, 56, 56, 28, 28, 14, *[14] * 5, 7, 7]


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return Llama(11, width=16, blocks=2, heads=2).double()


def test_llama_sees_no_later_token_and_tells_places_apart(llama):
    tokens = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 9, 5], [2, 1, 3, 4, 5]])
    logits = llama(tokens)
    assert logits.shape == (3, 5, 11)
    torch.testing.assert_close(logits[0, :3], logits[1, :3])
    assert not torch.allclose(logits[0, 3], logits[1, 3])
    assert not torch.allclose(logits[0, 2], logits[2, 2])  # the same tokens in another order


def test_llama_knows_places_by_their_distances_only(llama):
    """Among equal tokens all places are alike, which they would not be if places had embeddings."""
    same = llama(torch.full((1, 6), 3))
    torch.testing.assert_close(same, same[:, :1].expand_as(same))


def test_all_of_llama_is_read(llama):
    spec = hf.read(llama, torch.zeros(1, 5, dtype=torch.long))
    assert {t.name for t in spec} == {name for name, _ in llama.named_parameters()}
    assert {t.role for t in spec} == {"weight", "scale"}
    fans = {t.name: t.fans for t in spec if t.role == "weight"}
    assert fans["blocks.1.mlp.down_proj.weight"].channels_in == 32
    net = hf.HyperNet(llama, 8, generate="*.[qv]_proj.weight", example=torch.zeros(1, 5, dtype=torch.long))
    assert {t.name.split(".")[-2] for t in net.generated} == {"q_proj", "v_proj"}
    assert len(net.generated) == 4
