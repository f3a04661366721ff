"""Data sets fetched whole, from servers on this machine."""

import dataclasses
import hashlib
import io
import random
import tarfile
import zipfile

import pytest
from mirrors import mirrors
from PIL import Image

import needs
from hyperfan.data.download import File
from hyperfan.data.fetch import SOURCES, fetch
from hyperfan.data.folder import IMAGENETTE
from hyperfan.data.lookup import LAYOUTS, MNIST_FILES, find
from hyperfan.errors import DataError, HyperfanWarning


def archive(*extra, splits=("train", "val")):
    """Imagenette in small: noise, which does not compress, as real pictures do not."""
    made = io.BytesIO()
    noise = random.Random(0)
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for split in splits:
            for name in IMAGENETTE:
                picture = io.BytesIO()
                Image.frombytes("RGB", (40, 40), noise.randbytes(4800)).save(picture, "JPEG", quality=95)
                info = tarfile.TarInfo(f"imagenette2-160/{split}/{name}/{name}_1.JPEG")
                info.size = len(picture.getvalue())
                tar.addfile(info, io.BytesIO(picture.getvalue()))
        for info in extra:
            tar.addfile(info)
    return made.getvalue()


def offer(monkeypatch, name, *contents, site):
    """Let the files of a data set be these contents, at these mirrors."""
    files = [
        File(file.name, len(content), hashlib.sha256(content).hexdigest(), (site.url("missing"), site.url("good")))
        for file, content in zip(SOURCES[name].files, contents, strict=True)
    ]
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], files=tuple(files)))


@pytest.fixture
def imagenette_site(monkeypatch):
    unwanted = "noisy_imagenette.csv", f"val/{IMAGENETTE[0]}/{IMAGENETTE[0]}_2.JPEG/../../../../../out.JPEG"
    content = archive(*(tarfile.TarInfo(f"imagenette2-160/{name}") for name in unwanted))
    with mirrors(content) as site:
        offer(monkeypatch, "imagenette", content, site=site)
        yield site


def test_an_archive_becomes_a_folder(imagenette_site, tmp_path):
    told = []
    folder = fetch("imagenette", tmp_path / "new/folder", lambda *step: told.append(step))
    assert folder == tmp_path / "new/folder/imagenette2-160"
    assert len(list(folder.rglob("*.JPEG"))) == 20
    # Neither the archive nor anything temporary nor an unwanted member is left.
    assert [p.name for p in folder.parent.iterdir()] == ["imagenette2-160"]
    assert sorted(p.name for p in folder.iterdir()) == ["train", "val"]
    assert told[-1][0] == "imagenette2-160.tgz"


def test_what_is_there_and_whole_is_left_alone(imagenette_site, tmp_path):
    fetch("imagenette", tmp_path)
    asked = len(imagenette_site.asked)
    (tmp_path / "imagenette2-160/mine").write_text("")
    fetch("imagenette", tmp_path)
    assert len(imagenette_site.asked) == asked
    assert (tmp_path / "imagenette2-160/mine").exists()


def test_a_folder_that_is_not_whole_is_set_aside(imagenette_site, tmp_path):
    for i in (1, 2):
        (tmp_path / "imagenette2-160/val" / IMAGENETTE[0]).mkdir(parents=True, exist_ok=True)
        (tmp_path / f"imagenette2-160/mine{i}").write_text("")
        for picture in (tmp_path / "imagenette2-160").rglob("*.JPEG"):
            picture.unlink()
        with pytest.warns(HyperfanWarning, match=rf"was not complete; it is now .*imagenette2-160\.old{i}"):
            fetch("imagenette", tmp_path)
        assert (tmp_path / f"imagenette2-160.old{i}/mine{i}").exists()
        assert sorted(p.name for p in (tmp_path / "imagenette2-160").iterdir()) == ["train", "val"]


def test_an_archive_that_a_user_brought_is_used_and_kept(imagenette_site, tmp_path):
    (tmp_path / "imagenette2-160.tgz").write_bytes(imagenette_site.content)
    fetch("imagenette", tmp_path)
    assert imagenette_site.asked == []
    assert (tmp_path / "imagenette2-160.tgz").exists()


def test_an_archive_without_all_of_the_set_leaves_no_folder(monkeypatch, tmp_path):
    with mirrors(archive(splits=["train"])) as site:
        offer(monkeypatch, "imagenette", site.content, site=site)
        with pytest.raises(DataError, match="val cannot be read: No such file"):
            fetch("imagenette", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["imagenette2-160.tgz"]


TINY_CLASSES = ("n02124075", "n01443537")


def tiny_imagenet_archive(*extra, annotated=True):
    """Tiny ImageNet in small: two classes, in the order of its list, and what is not unpacked."""
    made = io.BytesIO()
    picture = io.BytesIO()
    Image.new("L", (64, 64), 77).save(picture, "JPEG")
    with zipfile.ZipFile(made, "w") as members:
        top = "tiny-imagenet-200"
        members.writestr(f"{top}/wnids.txt", "".join(f"{name}\n" for name in TINY_CLASSES))
        members.writestr(f"{top}/words.txt", "")
        for i, name in enumerate(TINY_CLASSES):
            members.writestr(f"{top}/train/{name}/images/{name}_0.JPEG", picture.getvalue())
            members.writestr(f"{top}/train/{name}/{name}_boxes.txt", "")
            members.writestr(f"{top}/val/images/val_{i}.JPEG", picture.getvalue())
        members.writestr(f"{top}/test/images/test_0.JPEG", picture.getvalue())
        if annotated:
            lines = [f"val_{i}.JPEG\t{name}\t0\t0\t62\t62\n" for i, name in enumerate(TINY_CLASSES)]
            members.writestr(f"{top}/val/val_annotations.txt", "".join(lines))
        for name in extra:
            members.writestr(name, picture.getvalue())
    return made.getvalue()


def test_a_zip_archive_becomes_a_folder_and_nothing_leaves_it(monkeypatch, tmp_path):
    escapes = ["../out.JPEG", "/tmp/out.JPEG", "tiny-imagenet-200/val/images/../../../../out.JPEG",
               "tiny-imagenet-200/val/images/val_2.JPEG/../../../../../out.JPEG",
               "tiny-imagenet-200/train/n02124075/images/..\\out.JPEG"]  # fmt: skip
    with mirrors(tiny_imagenet_archive(*escapes)) as site:
        offer(monkeypatch, "tiny-imagenet", site.content, site=site)
        folder = fetch("tiny-imagenet", tmp_path / "new")
        assert folder == tmp_path / "new/tiny-imagenet-200"
        assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == {
            f"new/tiny-imagenet-200/{name}"
            for name in (
                *("wnids.txt", "words.txt", "val/val_annotations.txt"),
                *("val/images/val_0.JPEG", "val/images/val_1.JPEG"),
                *(f"train/{name}/images/{name}_0.JPEG" for name in TINY_CLASSES),
            )
        }
        asked = len(site.asked)
        fetch("tiny-imagenet", tmp_path / "new")
        assert len(site.asked) == asked


def test_a_zip_archive_without_all_of_the_set_leaves_no_folder(monkeypatch, tmp_path):
    with mirrors(tiny_imagenet_archive(annotated=False)) as site:
        offer(monkeypatch, "tiny-imagenet", site.content, site=site)
        with pytest.raises(DataError, match=r"there is no .*val_annotations\.txt"):
            fetch("tiny-imagenet", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["tiny-imagenet-200.zip"]


def test_single_files_go_into_the_folder_of_their_set(monkeypatch, tmp_path):
    with mirrors(b"some content") as site:
        offer(monkeypatch, "mnist", *[site.content] * 4, site=site)
        assert fetch("mnist", tmp_path) == tmp_path / "mnist"
        assert {p.name: p.read_bytes() for p in (tmp_path / "mnist").iterdir()} == {
            f"{name}.gz": site.content for name in MNIST_FILES
        }
        # One is damaged, and only that one is asked for again.
        (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").write_bytes(b"x")
        site.asked.clear()
        fetch("mnist", tmp_path)
        assert [path for path, _ in site.asked] == ["missing", "good"]


def test_fetched_into_the_folder_that_will_be_looked_at(imagenette_site, tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERFAN_DATA", str(tmp_path / "variable"))
    fetch("imagenette")
    assert find("imagenette") == tmp_path / "variable/imagenette2-160"


def test_what_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"fetching mnist stopped at .*file"):
        fetch("mnist", tmp_path / "file")
    with mirrors(b"some content") as site:
        offer(monkeypatch, "mnist", *[site.content] * 4, site=site)
        (tmp_path / "mnist/train-images-idx3-ubyte.gz").mkdir(parents=True)
        with pytest.raises(DataError, match=r"stopped at .*train-images-idx3-ubyte\.gz: Is a directory"):
            fetch("mnist", tmp_path)


def test_an_unknown_set(tmp_path):
    with pytest.raises(DataError, match="there is no data set 'minst': did you mean 'mnist'"):
        fetch("minst", tmp_path)


def test_the_tables_agree():
    assert list(SOURCES) == list(LAYOUTS)
    assert [file.name for file in SOURCES["mnist"].files] == [f"{name}.gz" for name in MNIST_FILES]
    assert set(MNIST_FILES) <= set(LAYOUTS["mnist"].entries)
    assert [f.size for f in SOURCES["mnist"].files] == [9912422, 28881, 1648877, 4542]
    for source in SOURCES.values():
        for file in source.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert all(url.startswith("https://") and url.endswith(f"/{file.name}") for url in file.mirrors)


def test_the_official_files_are_what_fetch_expects():
    """Where the compressed official files are, they have the sizes and checksums of the table."""
    folder = needs.data_set("mnist")
    for file in SOURCES["mnist"].files:
        assert file.is_at(folder / file.name) or (folder / file.name.removesuffix(".gz")).exists()
