"""The official files, if they are there: sizes, classes, and the means and deviations that are standardised with."""

import torch

import needs
from checks import SIGMAS
from hyperfan.data import CIFAR10, MNIST, cifar10, imagenette, lasa, mnist, standardise, tiny_imagenet
from hyperfan.data.folder import open_picture, pixels


def there(reader):
    """Read the set from where users have it; one that is not there is skipped, one that is damaged is not."""
    needs.data_set(reader.__name__.replace("_", "-"))
    return reader()


def assert_scale(images, mean, std):
    """Mean and standard deviation, known to five digits, counted from how often each value occurs."""
    counts, values = images.flatten().bincount(minlength=256).double(), torch.arange(256).double() / 255
    seen = (counts @ values) / counts.sum()
    spread = ((counts @ (values - seen) ** 2) / counts.sum()).sqrt()
    torch.testing.assert_close([seen.item(), spread.item()], [mean, std], rtol=0, atol=0.5e-5)


def test_mnist():
    sets = there(mnist)
    assert sets.train.images.shape == (60_000, 28, 28)
    assert sets.test.images.shape == (10_000, 28, 28)
    assert sets.train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert sets.test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert_scale(sets.train.images, MNIST.mean, MNIST.std)
    assert sets.train.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_cifar10():
    sets = there(cifar10)
    assert sets.train.images.shape == (50_000, 3, 32, 32)
    assert sets.test.images.shape == (10_000, 3, 32, 32)
    assert sets.train.labels.bincount().tolist() == [5000] * 10
    assert sets.test.labels.bincount().tolist() == [1000] * 10
    for channel in range(3):
        assert_scale(sets.train.images[:, channel], CIFAR10.mean[channel], CIFAR10.std[channel])
    assert sets.train.labels[:5].tolist() == [6, 9, 9, 4, 1]


def test_the_channels_of_cifar10_are_standardised_each_by_its_own():
    images = there(cifar10).train.images[:10_000]
    made = standardise(images, CIFAR10.mean, CIFAR10.std)
    # Pixels of one picture go together, so that pictures are what is independent.
    means = made.mean((2, 3))
    error = means.std(0) / len(means) ** 0.5
    assert (means.mean(0).abs() < SIGMAS * error).all()


def test_imagenette():
    train, val = there(imagenette)
    assert train.classes == val.classes
    assert len(train.classes) == 10
    assert len(train.files) >= 1000
    assert len(val.files) >= 500
    for folder in (train, val):
        for path, label in folder.files[:: len(folder.files) // 20]:
            assert min(open_picture(path).size) == 160
            assert path.split("/")[-2] == folder.classes[label]


def test_tiny_imagenet():
    train, val = there(tiny_imagenet)
    assert train.classes == val.classes
    for folder, many in ((train, 500), (val, 50)):
        assert len(folder.files) == many * len(folder.classes)
        for path, _ in folder.files[:: len(folder.files) // 200]:  # of which about two are grey
            assert pixels(open_picture(path)).shape == (3, 64, 64)
    assert all(path.split("/")[-3] == train.classes[label] for path, label in train.files)


def test_lasa():
    sets = there(lasa)
    assert {tuple(drawn.shape) for drawn in sets.values()} == {(7, 100, 2)}
    for drawn in sets.values():
        assert 0.99 < drawn.abs().max() <= 1
        assert (drawn[:, -1] == 0).all()
        steps = drawn.diff(dim=1).norm(dim=2)
        assert steps.max() < 0.1  # a curve, and not points in any order
