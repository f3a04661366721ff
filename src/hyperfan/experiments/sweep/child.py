"""One run in a process of its own, which ends when the process that started it is gone.

A job goes to it as a line of JSON on its standard input, which then stays open as long as the starter lives. What it
has to say goes to its standard error, and how the run ended is its exit code.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hyperfan.errors import HyperfanError
from hyperfan.experiments.exit_codes import EXIT_CODES, FAILED, IN_USE
from hyperfan.experiments.experiment import Configuration
from hyperfan.experiments.launch import LAUNCH_VARIABLES
from hyperfan.metrics import Outcome

CRASHED = 1
"""The exit code after an error that nobody foresaw, which is that of no outcome."""


@dataclass(frozen=True)
class RunRequest:
    """A run to make: its configuration, folder and data, and what writes its summary, as "module:name"."""

    config: Configuration
    path: Path
    data_dir: Path | None
    summarise: str

    def to_json(self) -> str:
        """Convert to text that another process reads it from."""
        assert dataclasses.is_dataclass(self.config)
        kind = type(self.config)
        values = {f.name: getattr(self.config, f.name) for f in dataclasses.fields(self.config)}
        place = {"path": os.path.abspath(self.path), "data_dir": self.data_dir and os.path.abspath(self.data_dir)}
        return json.dumps({"kind": name_of(kind), "values": values, **place, "summarise": self.summarise})

    @classmethod
    def of_json(cls, text: str) -> "RunRequest":
        """Read what :meth:`to_json` wrote."""
        content = json.loads(text)
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in content["values"].items()}
        data_dir = content["data_dir"] and Path(content["data_dir"])
        return cls(resolve_name(content["kind"])(**values), Path(content["path"]), data_dir, content["summarise"])


def name_of(value: Callable[..., Any]) -> str:
    """Module and name of a class or function."""
    return f"{value.__module__}:{value.__qualname__}"


def _one_process(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment without what says that its process is one of several, as that of a worker which srun started."""
    return {name: value for name, value in variables.items() if name not in LAUNCH_VARIABLES}


class Child:
    """The process of a run, as its starter sees it."""

    place = "here"

    def __init__(self, job: str) -> None:
        # Folders that this process imports from, as tests do, are there for the other one too.
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder != "")
        with contextlib.ExitStack() as files:
            self._errors = files.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import start; start()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**_one_process(os.environ), "PYTHONPATH": path},
            )
            self._files = files.pop_all()
        assert self._process.stdin is not None
        self._process.stdin.write(job.encode() + b"\n")
        self._process.stdin.flush()

    def poll(self) -> tuple[int, list[str]] | None:
        """The exit code of the process and the lines of its standard error, once, if it has ended."""
        code = self._process.poll()
        if code is None:
            return None
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._files:
            self._errors.seek(0)
            return code, self._errors.read().decode(errors="replace").splitlines()

    def terminate(self) -> None:
        """Let it save and end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once; its folder survives that."""
        self._process.kill()


def main() -> int:
    """Run the job on the standard input; returns the exit code of its outcome."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # in a terminal, which stops its starter, and that this process
    job = RunRequest.of_json(sys.stdin.readline())
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    try:
        return EXIT_CODES[run_job(job)]
    except KeyboardInterrupt:  # before training began
        return EXIT_CODES[Outcome.TERMINATED]


def run_job(job: RunRequest) -> str:
    """Make a run and its summary; returns its outcome."""
    from rich.console import Console

    from hyperfan.experiments.folder import InUseError
    from hyperfan.experiments.loop import run
    from hyperfan.experiments.progress import Notes
    from hyperfan.experiments.results.write import PAGE_FILE
    from hyperfan.metrics import UNDECIDED

    progress = Notes(Console(stderr=True, force_terminal=False), f"{job.config.title}: ")
    try:
        outcome = run(job.config, job.path, progress, data_dir=job.data_dir, resume=True)
        if outcome not in UNDECIDED and not (job.path / PAGE_FILE).exists():
            try:
                resolve_name(job.summarise)(job.path)
            except HyperfanError as error:  # the run itself is complete
                progress.note(f"no figures: {error}")
        return outcome
    except InUseError:
        return IN_USE
    except HyperfanError as error:
        progress.note(str(error))
        return FAILED


def _end_with_the_starter() -> None:
    """When the starter is gone, even by a kill, its end of the standard input is closed."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def start() -> None:
    """Run as a process of its own, which has died, for its starter, if there is an error that nobody foresaw."""
    code = CRASHED
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # the thread that reads the standard input would hold up the interpreter's end
