"""``unpack``: a tar archive, unpacked without trusting it.

Of its members only regular files are written, only those whose name matches in full, only their content, and only
within the folder given. Python's own ``filter="data"`` came with 3.11.4 and would allow more.
"""

import gzip
import re
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from hyperfan.errors import DataError


class _LimitedGzip(gzip.GzipFile):
    """A gzip file that raises once more than ``limit`` bytes have been read."""

    limit: int

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.limit -= len(content)
        if self.limit < 0:
            raise DataError("it unpacks to far more than it should")
        return content


def unpack(archive: Path, folder: Path, pattern: str, limit: int) -> None:
    """Unpack the members whose name matches ``pattern``; all members together may have ``limit`` bytes."""
    try:
        with _LimitedGzip(archive) as stream:
            stream.limit = limit
            with tarfile.open(fileobj=stream, mode="r|") as members:
                for member in members:
                    path = _check(member)
                    content = members.extractfile(member)
                    if content and re.fullmatch(pattern, str(path)):
                        (folder / path).parent.mkdir(parents=True, exist_ok=True)
                        with open(folder / path, "wb") as target:
                            shutil.copyfileobj(content, target)
    except DataError as error:
        raise DataError(f"{archive} is not unpacked: {error}") from None
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive} cannot be unpacked, it is damaged: {error}") from error


def _check(member: tarfile.TarInfo) -> PurePosixPath:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
        raise DataError(f"its member '{member.name}' would lie outside the folder")
    if not (member.isreg() or member.isdir()):
        raise DataError(f"its member '{member.name}' is neither a file nor a folder, but a link or a device")
    return path
