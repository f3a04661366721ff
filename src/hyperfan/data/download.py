"""Download of one file, from the first of its mirrors that has it; a broken download is resumed by the next call."""

import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hyperfan.errors import DataError
from hyperfan.files import checksum

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
        return path.is_file() and path.stat().st_size == self.size and checksum(path) == self.sha256


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
        except (MirrorError, urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError,
                ssl.SSLError) as error:  # fmt: skip
            failures.append(f"{url} ({error})")
            if isinstance(error, urllib.error.HTTPError):
                error.close()
        else:
            os.replace(part, target)
            return target
    later = f"; {_size(part)} of {file.size} bytes are kept, and the next call continues" if _size(part) else ""
    raise DataError(f"{file.name} could not be downloaded from {', nor from '.join(failures)}{later}")


def _download_from(url: str, file: File, part: Path, progress: Progress) -> None:
    """Receive what the part lacks of the file, and verify it."""
    done = _size(part) if _size(part) < file.size else 0
    headers = {"User-Agent": "hyperfan"} | ({"Range": f"bytes={done}-"} if done else {})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        done = done if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        offered = done + int(response.headers.get("Content-Length", file.size - done))
        if offered != file.size:
            raise MirrorError(f"it offers {offered} bytes, not {file.size}: another file, or a page that explains")
        with open(part, "ab" if done else "wb") as stream:
            while chunk := response.read(min(CHUNK_BYTES, file.size - done)):
                done += stream.write(chunk)
                progress(file.name, done, file.size)
    if done < file.size:
        raise MirrorError(f"it ended after {done} of {file.size} bytes")
    if not file.is_at(part):
        part.unlink()
        raise MirrorError("its content is another: the SHA-256 differs")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
