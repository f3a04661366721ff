"""Folders of pictures: their order, their pixels, and what is said of bad ones."""

import re
import shutil
import sys

import pytest
import torch
from PIL import Image

from hyperfan.data import ImageFolder, imagenette, tiny_imagenet
from hyperfan.data.folder import IMAGENETTE, open_picture, pixels
from hyperfan.errors import DataError


def picture(path, color=(10, 20, 30), size=(4, 3), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path, "JPEG" if path.suffix.lower() in (".jpg", ".jpeg") else "PNG")


@pytest.fixture
def root(tmp_path):
    for file in ("b/2.PNG", "b/10.png", "a/1.JPEG", "a/0.jpg"):
        picture(tmp_path / "train" / file)
    return tmp_path


def test_classes_and_files_are_in_the_order_of_their_names(root):
    folder = ImageFolder(root, "train")
    assert folder.classes == ("a", "b")
    names = [path.removeprefix(f"{root}/train/") for path, _ in folder.files]
    assert names == ["a/0.jpg", "a/1.JPEG", "b/10.png", "b/2.PNG"]
    assert [label for _, label in folder.files] == [0, 0, 1, 1]


def test_a_picture_is_rgb_channels_first(tmp_path):
    image = Image.new("RGB", (4, 3), (10, 20, 30))
    image.putpixel((3, 1), (1, 2, 3))
    image.save(tmp_path / "10.png")
    read = pixels(open_picture(tmp_path / "10.png"))
    assert read.shape == (3, 3, 4)
    assert read.dtype == torch.uint8
    assert read.is_contiguous()
    assert read[:, 0, 0].tolist() == [10, 20, 30]
    assert read[:, 1, 3].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("mode", "color", "rgb"), [
    ("L", 77, [77, 77, 77]), ("RGBA", (1, 2, 3, 0), [1, 2, 3]), ("1", 1, [255, 255, 255]),
])  # fmt: skip
def test_other_modes_become_rgb(tmp_path, mode, color, rgb):
    picture(tmp_path / "x.png", color, mode=mode)
    assert pixels(open_picture(tmp_path / "x.png"))[:, 0, 0].tolist() == rgb


def test_hidden_and_other_files_are_passed_over(root):
    for file in ("train/.hidden/1.png", "train/a/._0.png"):
        picture(root / file)
    (root / "train/a/notes.txt").write_text("")
    (root / "train/list.csv").write_text("")
    folder = ImageFolder(root, "train")
    assert folder.classes == ("a", "b")
    assert len(folder.files) == 4


def test_links_are_followed(root, tmp_path):
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/val").symlink_to(root / "train")
    (root / "train/c").symlink_to(root / "train/b")
    folder = ImageFolder(tmp_path / "linked", "val")
    assert folder.classes == ("a", "b", "c")
    assert folder.files[5] == (f"{tmp_path}/linked/val/c/2.PNG", 2)


def test_a_picture_that_cannot_be_read_is_named(root, denied):
    path = root / "train/a/0.jpg"
    Image.effect_noise((64, 64), 50).save(path)
    whole = path.read_bytes()
    for content in (b"", b"not a picture", whole[: len(whole) // 2], b"\x89PNG\r\n\x1a\n" + b"\0" * 8):
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(f"{path} cannot be read as a picture")):
            open_picture(path)
    with denied(path), pytest.raises(DataError, match="Permission denied"):
        open_picture(path)
    path.unlink()
    with pytest.raises(DataError, match=re.escape(f"{path} cannot be read: No such file")):
        open_picture(path)
    path.mkdir()
    with pytest.raises(DataError, match=re.escape(f"{path} is no file, but a folder")):
        open_picture(path)


def test_without_pillow_it_says_how_to_get_it(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'hyperfan\[data\]'"):
        open_picture(root / "train/a/0.jpg")


def test_a_missing_split_an_empty_one_and_an_empty_class(root):
    with pytest.raises(DataError, match=re.escape(f"{root / 'val'} cannot be read: No such file")):
        ImageFolder(root, "val")
    (root / "val").mkdir()
    with pytest.raises(DataError, match=re.escape(f"{root / 'val'} holds no folders of classes")):
        ImageFolder(root, "val")
    (root / "val/a").mkdir()
    with pytest.raises(DataError, match=re.escape(f"{root / 'val/a'} holds no pictures")):
        ImageFolder(root, "val")
    (root / "test").write_text("")
    with pytest.raises(DataError, match="test cannot be read: Not a directory"):
        ImageFolder(root, "test")


@pytest.mark.parametrize("place", ["imagenette2-160", "."])
def test_imagenette_is_found_in_its_folder_and_without(tmp_path, place):
    for split, count in (("train", 2), ("val", 1)):
        for name in IMAGENETTE:
            for i in range(count):
                picture(tmp_path / place / split / name / f"{i}.jpg")
    train, val = imagenette(tmp_path)
    assert (len(train.files), len(val.files)) == (20, 10)


def test_another_folder_of_pictures_is_not_imagenette(root):
    picture(root / "val/a/1.jpg")
    with pytest.raises(DataError, match="holds 2 classes, from a to b, that are not the ten of Imagenette"):
        imagenette(root)


def test_imagenette_without_a_split_says_how_to_get_it(tmp_path):
    picture(tmp_path / "imagenette2-160/train/n01440764/1.jpg")
    with pytest.raises(
        DataError,
        match=r"val cannot be read: No such file or directory\. To get the data: hyperfan data fetch imagenette",
    ):
        imagenette(tmp_path)


@pytest.fixture
def tiny(tmp_path):
    """Tiny ImageNet in small, in its layout: 3 pictures of each of two classes to train on, 2 to test on."""
    root = tmp_path / "tiny-imagenet-200"
    for name in ("b", "a"):
        for i in range(3):
            picture(root / f"train/{name}/images/{name}_{i}.JPEG")
        (root / f"train/{name}/{name}_boxes.txt").write_text("")
    for i in range(4):
        picture(root / f"val/images/val_{i}.JPEG", 10 * i, mode="L")
    lines = [f"val_{i}.JPEG\t{name}\t0\t0\t3\t2\n" for i, name in enumerate("baab")]
    (root / "val/val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("b\na\n")
    return root


def test_tiny_imagenet_has_a_folder_of_images_in_each_class(tiny):
    folder = ImageFolder(tiny, "train")
    assert folder.classes == ("a", "b")
    names = [path.removeprefix(f"{tiny}/train/") for path, _ in folder.files]
    assert names == [f"{name}/images/{name}_{i}.JPEG" for name in "ab" for i in range(3)]


def test_pictures_in_a_class_s_folder_come_before_those_in_one_below(tiny):
    picture(tiny / "train/a/own.png")
    assert [path for path, label in ImageFolder(tiny, "train").files if label == 0] == [f"{tiny}/train/a/own.png"]


def test_a_file_of_annotations_tells_the_classes(tiny):
    folder = ImageFolder(tiny, "val")
    assert folder.classes == ("a", "b")
    names = [(path.removeprefix(f"{tiny}/val/images/"), label) for path, label in folder.files]
    assert names == [("val_1.JPEG", 0), ("val_2.JPEG", 0), ("val_0.JPEG", 1), ("val_3.JPEG", 1)]
    assert pixels(open_picture(folder.files[3][0]))[:, 0, 0].tolist() == [30, 30, 30]  # a grey picture


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda val: (val / "val_annotations.txt").unlink(), r"there is no .*val/val_annotations\.txt that tells"),
        (
            lambda val: picture(val / "images/val_9.JPEG"),
            r"val_9\.JPEG has no class: .*val_annotations\.txt has no line",
        ),
        (lambda val: (val / "images/val_2.JPEG").unlink(), r"images lacks val_2\.JPEG, of which .* tells the class"),
        (lambda val: (val / "val_annotations.txt").write_text("val_0.JPEG b\n"), r"line 1: 'val_0\.JPEG b' is not a"),
        (lambda val: shutil.rmtree(val / "images"), r"images cannot be read: No such file"),
        (lambda val: [p.unlink() for p in (val / "images").iterdir()], r"images holds no pictures"),
    ],
    ids=["no annotations", "not annotated", "no picture", "no tab", "no folder", "empty"],
)
def test_what_is_wrong_with_annotated_pictures_is_told_in_a_line(tiny, fault, message):
    fault(tiny / "val")
    with pytest.raises(DataError, match=message) as caught:
        ImageFolder(tiny, "val")
    assert "\n" not in str(caught.value)


def test_an_empty_folder_of_images(tiny):
    for path in (tiny / "train/b/images").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=re.escape(f"{tiny / 'train/b/images'} holds no pictures")):
        ImageFolder(tiny, "train")
    assert ImageFolder(tiny, "train", skip_empty=True).empty == ("b",)


def test_tiny_imagenet_has_the_classes_of_its_list(tiny):
    train, val = tiny_imagenet(tiny.parent)
    assert (len(train.files), len(val.files)) == (6, 4)
    (tiny / "wnids.txt").write_text("b\na\nc\n")
    with pytest.raises(
        DataError, match=r"train holds 2 classes, from a to b, that are not the 3 of .*wnids\.txt.*fetch"
    ):
        tiny_imagenet(tiny.parent)
    (tiny / "wnids.txt").unlink()
    with pytest.raises(DataError, match=r"wnids\.txt cannot be read.*hyperfan data fetch tiny-imagenet"):
        tiny_imagenet(tiny.parent)
