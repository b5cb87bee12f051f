"""Fits by several processes: a parent that watches each, and their connection.

The libraries end a process that has lost another one by an abort with a C++ stack, and
wait forever where one hangs between two messages. So `irtjax fit --distributed` runs
the fit in a child, whose native output goes to a file, and ends in one line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from irtjax.cli import options as opt

#: In the child: numbers of the parent's standard output and standard error. The
#: libraries write to both.
STREAMS = "IRTJAX_STREAMS"
#: What names of folders with blocks of a streamed fit begin with, before the number of
#: the process.
BLOCKS = ".irtjax-"
#: Seconds without a sign of life after which a process counts as lost.
PATIENCE = 30
#: Seconds that a process that has its results waits for those of the others, which may
#: still compile. One that is lost meanwhile is noticed after `PATIENCE`.
LAST = 3600
#: Exit statuses: another process was lost; the addresses were refused.
LOST, FAILED = 75, 1


@dataclasses.dataclass(frozen=True)
class Devices(opt.Machine):
    """The devices and processes of a fit: each field is an option."""

    devices: Annotated[
        int | None,
        opt.option(
            "Divide the subjects over 1, 2, 4 or 8 devices of each process: cores, or"
            " accelerators. The results are the same to the last bit, of scores to"
            " rounding."
        ),
    ] = None
    distributed: Annotated[
        bool,
        opt.option(
            "Divide the subjects over the processes that run this command, on one host"
            " or several; Slurm, Kubernetes and mpirun state their addresses.",
            "--distributed",
        ),
    ] = False
    coordinator: Annotated[
        str | None,
        opt.option(
            "Address of the first process, where nothing states it.",
            metavar="HOST:PORT",
        ),
    ] = None
    processes: Annotated[
        int | None, opt.option("How many processes there are.", min=1)
    ] = None
    process: Annotated[
        int | None, opt.option("Number of this process, from 0.", min=0)
    ] = None

    def check(self) -> None:
        """Refuses other numbers of devices, and addresses that are incomplete."""
        if self.devices not in (None, 1, 2, 4, 8):
            raise ValueError(f"--devices {self.devices} is not one of 1, 2, 4, 8")
        parts = self.coordinator, self.processes, self.process
        missing = [part is None for part in parts]
        if not self.distributed and not all(missing):
            raise ValueError(
                "--coordinator, --processes and --process require --distributed"
            )
        if any(missing) and not all(missing):
            raise ValueError(
                "--coordinator, --processes and --process are given together, or left"
                " out where Slurm, Kubernetes or mpirun state them"
            )
        if self.processes is not None and (self.process or 0) >= self.processes:
            raise ValueError(
                f"--process {self.process}: the numbers of {self.processes} processes"
                f" are 0 to {self.processes - 1}"
            )

    @property
    def divides(self) -> bool:
        """Whether subjects are divided."""
        return self.distributed or self.devices is not None

    @property
    def is_parent(self) -> bool:
        """Whether this process only watches the one that fits."""
        return self.distributed and STREAMS not in os.environ

    def prepare(self) -> Any:
        """As that of `Machine`; a CPU counts as so many devices."""
        from irtjax.cli.machine import prepare

        devices = (self.devices or 1) if self.divides else None
        return prepare(self.float32, self.device, devices)

    def mesh(self) -> Any:
        """The devices that subjects are divided over; None for one."""
        from irtjax.cli.machine import mesh_of

        if not self.divides:
            return None
        return mesh_of(None if self.distributed else self.devices)

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Connects the processes, if there are several, until all have their results.

        A process that loses another one ends with a status of its own.
        """
        if not self.distributed:
            yield
            return
        self._connect()
        import jax

        try:
            self._meet()
            yield
            jax.distributed.shutdown()
        except RuntimeError as error:  # JAX's errors of collectives are of this class.
            if "RESOURCE_EXHAUSTED" in str(error):
                raise
            os.write(2, f"{error}\n".encode())
            os._exit(LOST)

    def _meet(self) -> None:
        """Opens the channels between all devices, before anything takes long.

        gloo opens them at the first sum, and waits 30 s for each process. Later one may
        still compile that long when another one has begun to compute.
        """
        self.prepare()
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = self.mesh()
        each = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        all_of_them = NamedSharding(mesh, PartitionSpec())
        ones = jax.make_array_from_callback((mesh.size,), each, lambda _: np.ones(1))
        jax.block_until_ready(
            jax.jit(lambda x: x.sum(), out_shardings=all_of_them)(ones)
        )

    def _connect(self) -> None:
        """Connects the processes, before JAX starts.

        Raises:
            ValueError: If nothing states the addresses, or nobody answers there.
        """
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                self.coordinator,
                self.processes,
                self.process,
                initialization_timeout=60,
                heartbeat_timeout_seconds=PATIENCE,
                shutdown_timeout_seconds=LAST,
            )
        except (ValueError, RuntimeError) as error:
            where = self.coordinator or "the addresses of Slurm, Kubernetes or mpirun"
            os.write(2, f"{error}\n".encode())
            raise ValueError(
                f"--distributed found no other process by {where}: start every process"
                " within a minute, with --coordinator HOST:PORT --processes N"
                " --process I"
            ) from None


def watch(resumes: Path) -> int:
    """Runs this command in a child; its exit status, with a line for each end.

    `resumes` is the file from which a stopped fit resumes, next to the blocks of a
    streamed one.
    """
    streams = os.dup(1), os.dup(2)
    environment = {**os.environ, STREAMS: "{} {}".format(*streams)}
    command = [sys.executable, "-m", "irtjax", *sys.argv[1:]]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, pass_fds=streams
        )
        status = _wait(child)
        log.seek(0)
        native = log.read().decode(errors="replace")
    for blocks in resumes.parent.glob(f"{BLOCKS}{child.pid}-*"):
        shutil.rmtree(blocks, ignore_errors=True)
    if status in (0, 2, 130):
        return status
    again = "run the command again"
    if resumes.exists():
        again += f" on every process with --resume, from {resumes}"
    if os.environ.get("IRTJAX_TRACEBACK"):
        sys.stderr.write(native)
    if status < 0 and status != -6:
        ended = f"this process was killed by signal {-status}"
    elif status in (-6, LOST):
        ended = "another process of this fit was killed, hangs or cannot be reached"
    else:
        ended = f"this process ended with status {status}"
    sys.stderr.write(f"irtjax: {ended}: {again}\n")
    return FAILED


def _wait(child: subprocess.Popen[bytes]) -> int:
    """The exit status of a child, which an interruption reaches too."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            # Ctrl-C of a terminal reaches the child by itself.
            child.send_signal(2)


def enter_child() -> None:
    """Writes to the parent's streams, and ends this process with its parent."""
    out, err = map(int, os.environ[STREAMS].split())
    sys.stdout = os.fdopen(out, "w", buffering=1, encoding="utf-8")
    sys.stderr = os.fdopen(err, "w", buffering=1, encoding="utf-8")
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends this process as soon as its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(FAILED)


def is_first() -> bool:
    """Whether this process writes the results of the fit."""
    import jax

    return jax.process_index() == 0
