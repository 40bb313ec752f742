"""Executes one notebook with papermill, in a process of its own, so that a lost kernel takes nothing along.

The kernel talks over Unix sockets: no port to race for or to refuse, and nothing on the network. Whatever it
or papermill prints goes to a log file beside the executed notebook.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook
from papermill.iorw import LocalHandler, papermill_io

from vamp.experiments.progress import PROGRESS_FILE
from vamp.experiments.worker import watch_parent

KERNEL_NAME = "python3"
_SOCKET_PATH_MAX = 100  # bytes; Linux allows 107
_SOCKET_STEM = "kernel-"
_SOCKET_NAME = f"{_SOCKET_STEM}01234567-ipc-5"
_ERROR_CHARS = 2000


class IpcKernelManager(AsyncKernelManager):
    """A kernel manager on Unix sockets, in Jupyter's runtime folder, instead of TCP ports.

    The connection file gets its name at once: without one the sockets would be `kernel-ipc-1` and so on in
    the caller's folder, the same for every kernel started there.
    """

    def __init__(self, **kwargs: Any) -> None:
        name = f"{_SOCKET_STEM}{uuid4().hex[:8]}.json"
        kwargs.setdefault("connection_file", str(Path(jupyter_runtime_dir()) / name))
        super().__init__(transport="ipc", **kwargs)


class AtomicFiles(LocalHandler):
    """papermill's file writing, except that a process killed while it saves leaves the previous save whole."""

    def write(self, buf: str, path: str) -> None:
        temp = Path(f"{path}.part")
        temp.write_text(buf, encoding="utf-8")
        temp.replace(path)


@dataclass(frozen=True, slots=True)
class Job:
    """One notebook to execute.

    Attributes:
        parameters: checked values, injected after the cell tagged `parameters`.
        start_timeout_s: for the kernel to answer. cell_timeout_s: for each cell.
    """

    source: Path
    output: Path
    parameters: dict[str, Any]
    backend: str
    start_timeout_s: int
    cell_timeout_s: int

    @property
    def stem(self) -> str:
        return self.source.stem

    @property
    def log(self) -> Path:
        return self.output.with_suffix(".log")


def execute(job: Job, runtime: Path, answer: Connection) -> None:
    """Run the notebook and send "" or one line that says what went wrong. What ran is saved either way.

    Sockets and the file that says how far it is (`progress_file`) lie in `runtime`, which the caller clears.
    """
    watch_parent()
    job.output.parent.mkdir(parents=True, exist_ok=True)
    _redirect_output(job.log)
    os.environ.update({"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_PREFER_ENV_PATH": "1"})
    os.environ[PROGRESS_FILE] = str(progress_file(runtime))
    short = len(os.fsencode(runtime / _SOCKET_NAME)) <= _SOCKET_PATH_MAX
    manager = {"kernel_manager_class": f"{__name__}.{IpcKernelManager.__name__}"} if short else {}
    answer.send(_run(job, manager)[:_ERROR_CHARS])


def progress_file(runtime: Path) -> Path:
    return runtime / "progress.json"


def _run(job: Job, manager: dict[str, str]) -> str:
    papermill_io.register("/", AtomicFiles())  # type: ignore[no-untyped-call]  # "/" starts every absolute path
    try:
        execute_notebook(
            job.source,
            job.output,
            parameters=job.parameters,
            kernel_name=KERNEL_NAME,
            progress_bar=False,
            start_timeout=job.start_timeout_s,
            execution_timeout=job.cell_timeout_s,
            shutdown_kernel="immediate",  # results are written; a sleeping cell would hold up Ctrl-C
            **manager,
        )
    except PapermillExecutionError as err:
        return f"cell {err.exec_count}: {err.ename}: {_first_line(err.evalue)}"
    except Exception as err:  # a dead kernel, a timeout, a full disk: the caller prints it, the log has the rest
        return f"{type(err).__name__}: {_first_line(str(err))}"
    return ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _redirect_output(log: Path) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
