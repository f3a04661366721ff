"""One folder is looked at, and which."""

from pathlib import Path

import pytest

from hyperfan.data import cifar10, imagenette, mnist, tiny_imagenet
from hyperfan.data.lookup import cache_folder, data_folder, find
from hyperfan.errors import DataError

FILE = "train-images-idx3-ubyte.gz"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder to be given, one in $HYPERFAN_DATA, and the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HYPERFAN_DATA", str(tmp_path / "variable"))
    monkeypatch.setattr("sys.platform", "linux")
    folders = [tmp_path / "given", tmp_path / "variable", tmp_path / "cache/hyperfan"]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def test_the_given_folder_then_the_variable_then_the_cache(places, monkeypatch):
    given, variable, cache = places
    assert data_folder(given) == given
    assert data_folder(str(given)) == given
    assert data_folder() == variable
    monkeypatch.setenv("HYPERFAN_DATA", "")
    assert data_folder() == cache
    monkeypatch.delenv("HYPERFAN_DATA")
    assert data_folder() == cache


def test_home_is_understood(monkeypatch):
    monkeypatch.setenv("HYPERFAN_DATA", "~/sets")
    assert data_folder() == Path.home() / "sets"
    assert data_folder("~/other") == Path.home() / "other"


def test_the_set_s_own_folder_comes_before_the_folder_itself(places):
    given = places[0]
    (given / FILE).write_bytes(b"")
    assert find("mnist", given) == given
    (given / "mnist").mkdir()
    assert find("mnist", given) == given
    (given / "mnist" / FILE.removesuffix(".gz")).write_bytes(b"")
    assert find("mnist", given) == given / "mnist"


@pytest.mark.parametrize("reader", [mnist, cifar10, imagenette, tiny_imagenet])
@pytest.mark.parametrize("holds", [1, 2])
def test_nothing_is_taken_from_elsewhere_if_a_folder_was_given(places, reader, holds):
    """The folder given is empty; another holds something."""
    for name in (
        f"mnist/{FILE}",
        "cifar-10-batches-bin/test_batch.bin",
        "imagenette2-160/train",
        "tiny-imagenet-200/train",
    ):
        (places[holds] / name).parent.mkdir()
        (places[holds] / name).write_bytes(b"")
    with pytest.raises(DataError, match=f"no {reader.__name__.replace('_', '-')} in {places[0]}"):
        reader(places[0])


def test_the_cache_is_looked_at_after_the_variable(places):
    _, variable, cache = places
    (cache / FILE).write_bytes(b"")
    assert find("mnist") == cache
    (variable / FILE).write_bytes(b"")
    assert find("mnist") == variable


def test_what_is_not_found_names_the_folders_and_the_command(places):
    given, variable, cache = places
    with pytest.raises(DataError) as caught:
        mnist(given)
    assert str(caught.value) == (
        f"no mnist in {given / 'mnist'}, {given}: there is no {FILE}. "
        f"To get the data: hyperfan data fetch mnist --data-dir {given}"
    )
    with pytest.raises(DataError) as caught:
        cifar10()
    assert str(caught.value) == (
        f"no cifar10 in {variable / 'cifar-10-batches-bin'}, {variable}, {cache / 'cifar-10-batches-bin'}, {cache}: "
        "there is no data_batch_1.bin. "
        "To get the data: hyperfan data fetch cifar10"
    )


def test_a_folder_with_a_blank_in_its_name_can_be_pasted(tmp_path):
    with pytest.raises(DataError, match=r"--data-dir '.*my data'$"):
        mnist(tmp_path / "my data")


def test_a_folder_that_may_not_be_read(tmp_path, denied):
    with denied(tmp_path), pytest.raises(DataError, match=f"{tmp_path}.* cannot be read: Permission denied"):
        mnist(tmp_path)


@pytest.mark.parametrize(
    ("platform", "environ", "folder"),
    [
        ("linux", {}, "~/.cache/hyperfan"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/hyperfan"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "~/.cache/hyperfan"),
        ("freebsd14", {"XDG_CACHE_HOME": ""}, "~/.cache/hyperfan"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "~/Library/Caches/hyperfan"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/hyperfan"),
        ("win32", {}, "~/AppData/Local/hyperfan"),
    ],
)
def test_the_user_s_cache(platform, environ, folder):
    assert cache_folder(platform, environ) == Path(folder).expanduser()
