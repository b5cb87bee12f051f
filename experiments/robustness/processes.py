"""Commands of irtjax in processes that can be limited, killed and watched."""

import atexit
import dataclasses
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass
class Ended:
    """How a command ended: its exit status (negative for a signal) and last words."""

    status: int
    message: str
    seconds: float

    @property
    def how(self) -> str:
        """The outcome in a word."""
        if "Traceback" in self.message:
            return "traceback"
        if self.status < 0 or self.status == 134:
            return "aborted" if self.status in (-6, 134) else "killed"
        return {0: "done", 2: "refused in one line", 130: "interrupted"}.get(
            self.status, f"status {self.status}"
        )


def preload() -> None:
    """Imports what commands import: forked commands then begin with their work."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # No backend starts here: threads do not survive a fork.
    import matplotlib.figure  # noqa: F401
    import pyarrow.csv  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    from irtjax.plots import save_figure  # noqa: F401
    from irtjax.subsets import shrink  # noqa: F401
    from irtjax.validity import stability  # noqa: F401


class Command:
    """A running command, forked from this process after the imports."""

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        setup: Callable[[], None] | None = None,
    ) -> None:
        self.log, self.began = log, time.perf_counter()
        self.pid = os.fork()
        if self.pid == 0:
            self._run([str(x) for x in arguments], setup)

    def _run(self, arguments: list[str], setup: Callable[[], None] | None) -> None:
        # What this process cleans at its end is not the child's.
        atexit._clear()
        try:
            handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.argv = ["irtjax", *arguments]
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if setup is not None:
                setup()
            from irtjax.cli import main

            main()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)

    def kill(self) -> None:
        """Ends it at once."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> bool:
        """Whether it has ended; `wait` is still to be called."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def wait(self, limit: float = 300) -> Ended:
        """Waits for the end, which comes by force after `limit` seconds."""
        while not self.ended() and time.perf_counter() - self.began < limit:
            time.sleep(0.005)
        if not self.ended():
            self.kill()
        _, status = os.waitpid(self.pid, 0)
        seconds = time.perf_counter() - self.began
        text = self.log.read_text(errors="replace").strip()
        return Ended(os.waitstatus_to_exitcode(status), text[-2000:], seconds)


def limit(name: str, value: int) -> Callable[[], None]:
    """A setup that limits a resource, such as "RLIMIT_FSIZE"."""

    def setup() -> None:
        kind = getattr(resource, name)
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))

    return setup
