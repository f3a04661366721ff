"""Download of one file, from the first of its mirrors that has it; a broken download is resumed."""

import hashlib
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hyperfan.errors import DataError

Progress = Callable[[str, int, int], None]
"""A callback: the name of a file, how many of its bytes are here, and how many it has."""

TIMEOUT_SECONDS = 30.0
"""Seconds without a byte after which a connection counts as broken."""

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class File:
    """A file to download: its name, size, checksum, and the addresses that offer it."""

    name: str
    size: int
    sha256: str
    mirrors: tuple[str, ...]

    def is_at(self, path: Path) -> bool:
        """Whether the file at this path is this one, by size and checksum."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256


class MirrorError(Exception):
    """A mirror did not give the file; the message says why."""


def download(file: File, folder: Path, progress: Progress) -> Path:
    """Download the file into the folder, unless it is there already. It gets its name only once its checksum holds."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    if file.is_at(target):
        return target
    failures = []
    for url in file.mirrors:
        try:
            _download_from(url, file, part, progress)
        except MirrorError as failure:
            failures.append(f"{url} ({failure})")
        else:
            os.replace(part, target)
            return target
    later = f"; {_size(part)} of {file.size} bytes are kept, and the next call continues" if _size(part) else ""
    raise DataError(f"{file.name} could not be downloaded from {', nor from '.join(failures)}{later}")


def _download_from(url: str, file: File, part: Path, progress: Progress) -> None:
    """Request a mirror until the part is the file, as long as every response adds to it."""
    all_from_here = _size(part) == 0  # what was there before may be of another file
    while not file.is_at(part):
        start = _size(part)
        if start >= file.size:
            part.unlink()
            if all_from_here:
                raise MirrorError("its content is another: the SHA-256 differs")
            all_from_here, start = True, 0
        broken = _append(part, file, url, start, progress)
        if _size(part) <= start:
            raise MirrorError(broken or f"it ended after {_size(part)} of {file.size} bytes")


def _append(part: Path, file: File, url: str, start: int, progress: Progress) -> str | None:
    """Receive the bytes from ``start`` on, and return the error that interrupted it, if one did."""
    request = urllib.request.Request(url, headers={"User-Agent": "hyperfan"} | _range(start))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            done, total = _offered(response, start)
            if total not in (None, file.size):
                raise MirrorError(f"it offers {total} bytes, not {file.size}: another file, or a page that explains")
            with open(part, "ab" if done else "wb") as stream:
                while chunk := response.read(min(CHUNK_BYTES, file.size - done)):
                    done += stream.write(chunk)
                    progress(file.name, done, file.size)
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code} {error.reason}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _range(start: int) -> dict[str, str]:
    return {"Range": f"bytes={start}-"} if start else {}


def _offered(response: http.client.HTTPResponse, start: int) -> tuple[int, int | None]:
    """The byte at which a response starts, and the size of the file, if the headers have it."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        content_range = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not content_range or int(content_range[1]) != start:
            raise MirrorError(f"it was asked for the bytes from {start} on and gave others")
        return start, int(content_range[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
