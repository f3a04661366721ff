"""How a setting starts, against autograd through the hypernet itself."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from hyperfan.experiments.experiment import CLASSICAL
from hyperfan.experiments.mnist import Mnist
from hyperfan.experiments.mnist.results import measure_start
from hyperfan.experiments.mnist.training import build, probe_images

CONFIG = Mnist(embedding=4, probe_images=20)


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(50, 784), torch.randint(10, (50,))


def probed(images, config):
    chosen = probe_images(config, 50)
    return images[0][chosen], images[1][chosen]


@pytest.mark.parametrize("init", ["hyperfan-in", "xavier-fan-in"])
def test_flow_is_that_of_autograd(images, init):
    """∂L/∂h for each code, by backward through the heads."""
    config = replace(CONFIG, init=init)
    net, _ = build(config)
    x, y = probed(images, config)
    codes = net.codes().detach().requires_grad_()
    made = net.heads(codes)
    loss = cross_entropy(net.skeleton(made, x), y)
    into = torch.autograd.grad(loss, [codes, *made.values()])
    expected = [(into[0][i].square().mean() / g.square().mean()).item() for i, g in enumerate(into[1:])]
    # Sums of up to 392000 products in single precision, in another order.
    assert measure_start(config, *images).flow == pytest.approx(expected, rel=1e-4)


def test_activations_are_the_layers_outputs(images):
    config = replace(CONFIG, init=CLASSICAL)
    net, _ = build(config)
    x, _ = probed(images, config)
    expected = [net[: 2 * i + 1](x).std().item() for i in range(6)]
    assert measure_start(config, *images).activations == pytest.approx(expected, rel=1e-5)
    assert measure_start(config, *images).flow == ()


def test_images_are_those_of_the_run(images):
    x, y = probed(images, CONFIG)
    assert len(x) == len(y) == 20
    assert not torch.equal(x, probed(images, replace(CONFIG, seed=1))[0])


def test_gradients_are_those_at_the_layers_outputs(images):
    """Of the summed loss, so that each image has its own."""
    config = replace(CONFIG, init=CLASSICAL)
    net, _ = build(config)
    x, y = probed(images, config)
    outputs = []
    for layer in net:
        x = layer(x)
        if isinstance(layer, torch.nn.Linear):
            outputs.append(x)
    expected = torch.autograd.grad(cross_entropy(x, y, reduction="sum"), outputs)
    found = measure_start(config, *images).gradients
    assert found == pytest.approx([g.std().item() for g in expected], rel=1e-4)  # sums of 500 products
