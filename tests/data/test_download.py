"""A file from mirrors of every kind, served on this machine."""

import hashlib
import random

import pytest
from mirrors import mirrors

from hyperfan.data.download import File, download
from hyperfan.errors import DataError

CONTENT = random.Random(0).randbytes(1_000_000)


@pytest.fixture
def site():
    with mirrors(CONTENT) as site:
        yield site


@pytest.fixture
def get(site, tmp_path):
    """Download from mirrors that behave so, and say how it went on."""

    def run(*behaviours, content=CONTENT):
        file = File("x.gz", len(content), hashlib.sha256(content).hexdigest(), tuple(map(site.url, behaviours)))
        told = []
        path = download(file, tmp_path, lambda *step: told.append(step))
        assert path == tmp_path / "x.gz"
        assert path.read_bytes() == content
        assert [p.name for p in tmp_path.iterdir()] == ["x.gz"]
        return told

    return run


def test_the_first_mirror_is_enough(site, get):
    told = get("good", "missing")
    assert site.asked == [("good", None)]
    assert told[-1] == ("x.gz", 1_000_000, 1_000_000)
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    assert len(told) > 2


def test_what_is_there_is_not_asked_for(site, get, tmp_path):
    (tmp_path / "x.gz").write_bytes(CONTENT)
    get("good")
    assert site.asked == []


@pytest.mark.parametrize("there", [bytes(1_000_000), CONTENT[:-1], b""])
def test_what_is_there_and_damaged_is_replaced(get, tmp_path, there):
    (tmp_path / "x.gz").write_bytes(there)
    get("good")


@pytest.mark.parametrize("bad", ["missing", "wrong", "page", "longer"])
def test_a_mirror_that_fails_is_passed_over(site, get, bad):
    get(bad, "good")
    assert site.asked == [(bad, None), ("good", None)]


def test_a_server_that_is_not_there_is_passed_over(site, tmp_path):
    file = File("x", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), ("http://127.0.0.1:1/", site.url("good")))
    assert download(file, tmp_path, lambda *_: None).read_bytes() == CONTENT


@pytest.mark.parametrize("broken", ["cut/400000", "chunked/400000"])
def test_a_broken_connection_is_continued_where_it_broke(site, get, broken):
    """Chunks that were announced and do not come are an error to the library, not an end."""
    get(broken, "good")
    (first, _), (_, continued) = site.asked
    assert first == broken.partition("/")[0]
    assert continued.startswith("bytes=")


def test_the_next_mirror_continues_what_the_first_left(site, get):
    get("no-range/700000", "good")
    assert site.asked[-1] == ("good", "bytes=700000-")


def test_the_next_call_continues_what_the_last_left(site, get, tmp_path):
    with pytest.raises(DataError, match="700000 of 1000000 bytes are kept"):
        get("no-range/700000")
    assert not (tmp_path / "x.gz").exists()
    get("good")
    assert site.asked[-1] == ("good", "bytes=700000-")


def test_a_server_that_knows_no_ranges_starts_anew(site, get, tmp_path):
    (tmp_path / "x.gz.part").write_bytes(CONTENT[:300_000])
    get("no-range")
    assert site.asked == [("no-range", "bytes=300000-")]


def test_a_server_that_does_not_say_how_much_comes(get):
    get("no-length")


@pytest.mark.parametrize("part", [b"x" * 300_000, bytes(1_000_000), bytes(1_000_001)])
def test_a_part_of_another_file_is_thrown_away(site, get, tmp_path, part):
    (tmp_path / "x.gz.part").write_bytes(part)
    get("good", "good")
    assert site.asked[-1] == ("good", None)


def test_no_more_is_received_than_the_file_has(site, tmp_path):
    """A stream without a length and without an end does not fill the disk."""
    done = []
    file = File("x.gz", 300_000, "0" * 64, (site.url("no-length"),))
    with pytest.raises(DataError, match="the SHA-256 differs"):
        download(file, tmp_path, lambda name, so_far, total: done.append(so_far))
    assert max(done) == 300_000


def test_all_mirrors_failing_is_one_error_with_every_reason(site, get, tmp_path):
    with pytest.raises(DataError) as caught:
        get("missing", "page", "wrong", "cut/0")
    assert str(caught.value) == (
        f"x.gz could not be downloaded from {site.url('missing')} (HTTP Error 404: Not Found), "
        f"nor from {site.url('page')} (it offers 26 bytes, not 1000000: another file, or a page that explains), "
        f"nor from {site.url('wrong')} (its content is another: the SHA-256 differs), "
        f"nor from {site.url('cut/0')} (it ended after 0 of 1000000 bytes)"
    )
    assert not (tmp_path / "x.gz").exists()
