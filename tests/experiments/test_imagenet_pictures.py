"""The photographs of a run: which are trained and tested on, in which order, and what is done about bad ones."""

import shutil
import sys

import pytest
import torch
from PIL import Image

from hyperfan.errors import DataError, HyperfanError
from hyperfan.experiments.imagenet.pictures import (
    Crops,
    collate,
    evenly_spaced,
    loader,
    read_pictures,
)


@pytest.fixture
def root(tmp_path):
    """Four classes, 5 pictures each to train on and 2 to test on; a picture's colour tells its class and number."""
    for split, many in (("train", 5), ("val", 2)):
        for c, name in enumerate("abcd"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(many):
                Image.new("RGB", (30, 20), (10 * c, i, 7)).save(tmp_path / split / name / f"{i}.png")
    return tmp_path


def names(files, root):
    return [(path.removeprefix(f"{root}/"), label) for path, label in files]


def test_the_last_classes_are_held_out(root):
    found = read_pictures(root, held_out=1, skip_bad=False)
    assert found.classes == ("a", "b", "c")
    assert len(found.train) == 15
    assert {label for _, label in found.train} == {0, 1, 2}
    assert names(found.test, root) == [(f"val/{c}/{i}.png", k) for k, c in enumerate("abc") for i in range(2)]
    assert names(found.unknown, root) == [("val/d/0.png", 3), ("val/d/1.png", 3)]
    assert read_pictures(root, held_out=0, skip_bad=False).unknown == []
    with pytest.raises(HyperfanError, match="--held-out 3: of 4 classes"):
        read_pictures(root, held_out=3, skip_bad=False)


def test_classes_to_test_on_are_known_by_their_names(root):
    for file in (root / "val/a").iterdir():
        file.unlink()
    (root / "val/a").rmdir()
    found = read_pictures(root, held_out=0, skip_bad=False)
    assert names(found.test, root) == [(f"val/{c}/{i}.png", k) for k, c in enumerate("bcd", 1) for i in range(2)]


def test_a_class_to_test_on_that_train_lacks(root):
    (root / "val/d").rename(root / "val/zebra")
    with pytest.raises(DataError, match=r"has the class zebra, which .*train lacks.*--skip-bad"):
        read_pictures(root, held_out=0, skip_bad=False)
    found = read_pictures(root, held_out=0, skip_bad=True)
    assert found.left_out == ("val/zebra is not in train",)
    assert len(found.test) == 6


def test_a_class_without_pictures(root):
    (root / "train/c2").mkdir()
    with pytest.raises(DataError, match="holds no pictures"):
        read_pictures(root, held_out=0, skip_bad=False)
    found = read_pictures(root, held_out=0, skip_bad=True)
    assert found.classes == ("a", "b", "c", "d")
    assert found.left_out == ("train/c2 has no pictures",)


def test_the_first_classes_are_used_in_the_order_of_the_list(root):
    with pytest.raises(HyperfanError, match=r"--first-classes 5: .*train has 4 classes"):
        read_pictures(root, held_out=0, skip_bad=False, first_classes=5)
    found = read_pictures(root, held_out=1, skip_bad=False, first_classes=3)
    assert (found.name, found.classes, found.held_out) == (root.name, ("a", "b"), ("c",))
    (root / "wnids.txt").write_text("c\nd\na\n")
    found = read_pictures(root, held_out=1, skip_bad=False, first_classes=3)
    assert (found.classes, found.held_out) == (("c", "d"), ("a",))
    assert names(found.train, root) == [(f"train/{c}/{i}.png", k) for k, c in enumerate("cd") for i in range(5)]
    assert names(found.unknown, root) == [("val/a/0.png", 2), ("val/a/1.png", 2)]
    assert read_pictures(root, held_out=1, skip_bad=False).held_out == ("b",)  # which is not in the list


def test_a_class_of_the_list_that_is_not_there(root):
    (root / "wnids.txt").write_text("d\nzebra\na\nb\nc\n")
    with pytest.raises(DataError, match=r"train lacks the class zebra, which .*wnids\.txt lists.*--skip-bad"):
        read_pictures(root, held_out=0, skip_bad=False, first_classes=2)
    found = read_pictures(root, held_out=0, skip_bad=True, first_classes=3)
    assert found.classes == ("d", "a")
    assert found.left_out == ("zebra is in wnids.txt and not in train",)


def test_the_layout_of_tiny_imagenet(tmp_path):
    """Also found in a folder that holds it; a class to test on that train lacks is told as of other layouts."""
    root = tmp_path / "tiny-imagenet-200"
    (root / "val/images").mkdir(parents=True)
    for c, name in enumerate("ba"):
        (root / f"train/{name}/images").mkdir(parents=True)
        Image.new("L", (64, 64), c).save(root / f"train/{name}/images/{name}_0.JPEG")
        Image.new("L", (64, 64), c).save(root / f"val/images/val_{c}.JPEG")
    (root / "wnids.txt").write_text("b\na\n")
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\ta\t0\nval_1.JPEG\tb\t0\n")
    found = read_pictures(tmp_path, held_out=0, skip_bad=False)
    assert (found.name, found.classes) == ("tiny-imagenet-200", ("b", "a"))
    assert names(found.test, root) == [("val/images/val_1.JPEG", 0), ("val/images/val_0.JPEG", 1)]
    assert Crops(found.train, 64, None)[0, 0][0].shape == (3, 64, 64)
    before = found.fingerprint
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tb\t0\nval_1.JPEG\ta\t0\n")
    assert read_pictures(root, held_out=0, skip_bad=False).fingerprint != before
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tb\t0\nval_1.JPEG\tzebra\t0\n")
    with pytest.raises(DataError, match=r"has the class zebra, which .*train lacks"):
        read_pictures(root, held_out=0, skip_bad=False)


def test_a_picture_that_does_not_decode(root):
    bad = root / "train/b/3.png"
    bad.write_bytes(b"no picture")
    files = read_pictures(root, held_out=0, skip_bad=False).train
    index = [path for path, _ in files].index(str(bad))
    crops = Crops(files, 8, 0)
    x, y, found = collate([crops[0, index - 1], crops[0, index], crops[0, index + 1]])
    assert list(found) == [str(bad)]
    assert "cannot be read as a picture" in found[str(bad)]
    assert x.shape == (2, 3, 8, 8)
    assert y.tolist() == [1, 1]
    x, y, found = collate([crops[0, index]])
    assert (len(x), y.dtype, len(found)) == (0, torch.int64, 1)
    ((_, _, seen),) = loader(crops, [[(0, index), (0, 0)]], workers=1)  # nothing is raised in a worker
    assert seen == found


def test_without_pillow_it_is_not_the_pictures_that_are_blamed(root, monkeypatch):
    files = read_pictures(root, held_out=0, skip_bad=True).train
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'hyperfan\[data\]'"):
        Crops(files, 8, 0)


def test_nothing_to_test_on(root):
    for name in "abc":
        shutil.rmtree(root / "val" / name)
    with pytest.raises(DataError, match="none of the classes trained on"):
        read_pictures(root, held_out=1, skip_bad=False)


def test_a_crop_follows_from_seed_epoch_and_picture(root):
    files = read_pictures(root, 0, False).train
    Image.effect_noise((60, 60), 80).convert("RGB").save(files[0][0])
    first = Crops(files, 16, 3)
    assert torch.equal(first[2, 0][0], Crops(files, 16, 3)[2, 0][0])
    for other in (first[1, 0], Crops(files, 16, 4)[2, 0]):
        assert not torch.equal(first[2, 0][0], other[0])
    middle = Crops(files, 16, None)
    assert torch.equal(middle[0, 0][0], middle[5, 0][0])


def test_some_pictures_of_every_class():
    files = [(str(i), i // 10) for i in range(40)]
    assert evenly_spaced(files, None) == evenly_spaced(files, 50) == files
    assert [label for _, label in evenly_spaced(files, 8)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_change_nothing(root, workers):
    files = read_pictures(root, 0, False).train
    order = [[(epoch, 6 * epoch + i) for i in range(6)] for epoch in range(3)]
    found = list(loader(Crops(files, 8, 5), order, workers))
    crops = Crops(files, 8, 5)
    for (x, y, bad), keys in zip(found, order, strict=True):
        assert torch.equal(x, torch.stack([crops[key][0] for key in keys]))
        assert y.tolist() == [files[i][1] for _, i in keys]
        assert bad == {}
