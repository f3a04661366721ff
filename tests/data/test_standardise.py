"""Standardised pictures."""

import pytest
import torch

from hyperfan.data import CIFAR10, MNIST, standardise
from hyperfan.errors import DataError


def test_one_number_for_all():
    images = torch.randint(256, (5, 28, 28), dtype=torch.uint8)
    expected = (images.double() / 255 - MNIST.mean) / MNIST.std
    for shape in ((5, 28, 28), (5, 1, 28, 28), (140, 28)):
        made = standardise(images.reshape(shape), MNIST.mean, MNIST.std)
        assert made.dtype == torch.float32
        # The shift and the scale are rounded to float32, and values are below 3.
        torch.testing.assert_close(made.double(), expected.reshape(shape), rtol=0, atol=3 * 2**-22)


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5), (3, 3, 3, 3)])
def test_one_for_each_channel(shape):
    images = torch.full(shape, 51, dtype=torch.uint8)
    made = standardise(images, (0.2, 0.1, 0.0), (1.0, 0.1, 0.05))
    for channel, value in enumerate((0.0, 1.0, 4.0)):
        torch.testing.assert_close(made.select(-3, channel), torch.full(shape[:-3] + shape[-2:], value))


def test_a_batch_of_coloured_pictures_has_its_channels_last_in_memory():
    made = standardise(torch.zeros(2, 3, 4, 5, dtype=torch.uint8), CIFAR10.mean, CIFAR10.std)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert standardise(torch.zeros(2, 3, 4, 5, dtype=torch.uint8), 0.5, 0.5).is_contiguous()


def test_the_pictures_are_left_as_they_are():
    images = torch.full((2, 2), 51, dtype=torch.uint8)
    standardise(images, 0.5, 0.5)
    assert (images == 51).all()


def test_what_does_not_fit():
    with pytest.raises(DataError, match="was it done already"):
        standardise(torch.zeros(2, 28, 28), 0.5, 0.5)
    for shape in ((7, 28, 28), (2, 1, 28, 28), (28, 28)):
        with pytest.raises(DataError, match="do not fit pictures of shape"):
            standardise(torch.zeros(shape, dtype=torch.uint8), CIFAR10.mean, CIFAR10.std)
