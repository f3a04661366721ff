"""Archives that mean well, and others."""

import gzip
import io
import tarfile

import pytest

from hyperfan.data.unpack import unpack
from hyperfan.errors import DataError

WANTED = r"set/[a-z]+\.bin"


def member(name, content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}


@pytest.fixture
def run(tmp_path):
    """Unpack an archive of these members, and list what was written anywhere."""

    def make(*members, cut=None):
        archive = tmp_path / "x.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            for info, content in members:
                tar.addfile(info, io.BytesIO(content))
        archive.write_bytes(archive.read_bytes()[:cut])
        (tmp_path / "into").mkdir()
        unpack(archive, tmp_path / "into", WANTED, limit=10**6)
        return files(tmp_path) - {"x.tgz"}

    return make


def test_only_what_is_wanted_is_written(run, tmp_path):
    names = ["set/a.bin", "set/b.bin", "set/read.me", "other/a.bin", "a.bin", "set/a.bin.exe", "set/sub/a.bin"]
    written = run(member("set", type=tarfile.DIRTYPE), *(member(name, name.encode()) for name in names))
    assert written == {"into/set/a.bin", "into/set/b.bin"}
    assert (tmp_path / "into/set/b.bin").read_bytes() == b"set/b.bin"


def test_a_dot_before_the_name_does_not_matter(run):
    assert run(member("./set/a.bin", b"1")) == {"into/set/a.bin"}


def test_modes_and_owners_of_the_archive_are_not_taken(run, tmp_path):
    run(member("set/a.bin", b"1", mode=0o6777, uid=1234, mtime=0))
    seen = (tmp_path / "into/set/a.bin").stat()
    assert seen.st_mode & 0o7111 == 0
    assert seen.st_uid != 1234


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (member("../set/a.bin", b"1"), "would lie outside"),
        (member("set/../../a.bin", b"1"), "would lie outside"),
        (member("/set/a.bin", b"1"), "would lie outside"),
        (member("..\\a.bin", b"1"), "would lie outside"),
        (member("C:a.bin", b"1"), "would lie outside"),
        (member("set/a.bin", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a link or a device"),
        (member("set", type=tarfile.SYMTYPE, linkname=".."), "a link or a device"),
        (member("set/a.bin", type=tarfile.LNKTYPE, linkname="set/good.bin"), "a link or a device"),
        (member("set/a.bin", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "a link or a device"),
        (member("set/a.bin", type=tarfile.BLKTYPE), "a link or a device"),
        (member("set/a.bin", type=tarfile.FIFOTYPE), "a link or a device"),
        (member("set/a.bin", bytes(2_000_000)), "far more than it should"),
        (member("unwanted", bytes(2_000_000)), "far more than it should"),
        (member("a" * 2_000_000), "far more than it should"),
    ],
)
def test_a_hostile_member_stops_it(run, tmp_path, bad, message):
    with pytest.raises(DataError, match=message) as caught:
        run(member("set/good.bin", b"1"), bad, member("set/after.bin", b"1"))
    assert str(caught.value).startswith(f"{tmp_path / 'x.tgz'} is not unpacked: ")
    assert files(tmp_path) <= {"x.tgz", "into/set/good.bin", "into/set/a.bin"}
    assert sum(p.stat().st_size for p in tmp_path.rglob("*.bin")) <= 10**6


def test_many_small_members_count_as_well(run):
    with pytest.raises(DataError, match="far more than it should"):
        run(*(member(f"unwanted{i}") for i in range(2500)))


@pytest.mark.parametrize("cut", [0, 5, 60, -10])
def test_a_damaged_archive(run, cut):
    with pytest.raises(DataError, match="cannot be unpacked, it is damaged"):
        run(member("set/a.bin", bytes(range(256)) * 10), cut=cut)


def test_what_is_no_archive(tmp_path):
    for content in (b"<html>", gzip.compress(b"not tar" * 1000)):
        (tmp_path / "x.tgz").write_bytes(content)
        with pytest.raises(DataError, match="cannot be unpacked, it is damaged"):
            unpack(tmp_path / "x.tgz", tmp_path, WANTED, 10**6)
