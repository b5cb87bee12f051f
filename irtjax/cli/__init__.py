"""The command line: names become objects, results become files and tables."""

from __future__ import annotations

# As in `typing`, whose import takes most of the time before Ctrl-C is listened to.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

#: Bytes of address space below which the libraries abort the process as they start:
#: measured on two cores, 3.1e9 aborts and 3.4e9 suffices for small data.
LEAST_SPACE = 3.3e9


def main() -> None:
    """Runs the `irtjax` command; ends the process with its exit code."""
    import sys

    code: object = 1
    _open_streams()
    try:
        _listen()
        code = _run()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        # While modules are imported, before a command begins.
        sys.stderr.write("irtjax: interrupted\n")
        code = 130
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    _leave(code)


def _open_streams() -> None:
    """Opens streams that are closed, as those of some schedulers, to nowhere.

    A file that is opened later would have the number of a closed stream.
    """
    import os
    import sys

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def _run() -> int:
    """Sets the process up, runs the command and returns its exit status."""
    import gc
    import os
    import sys

    lacking = _lacking_space()
    if lacking and not {"--help", "--help-all", "-h", "--version"} & set(sys.argv):
        sys.stderr.write(f"irtjax: {lacking}\n")
        return 2
    # Imports and tracing make millions of objects and hardly a cycle: with Python's own
    # threshold the search for cycles is a twelfth of the time of a small fit.
    gc.set_threshold(200_000, 20, 100)
    # Typer's pydantic would read the metadata of every installed package for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # NumPy's products here are small, and idle threads of its library spin: they take a
    # quarter of the processor time of a small fit, and slow down JAX's threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from irtjax.cli.app import app
    from irtjax.cli.machine import hide_pandas

    hide_pandas()
    app(prog_name="irtjax")
    return 0


def _lacking_space() -> str:
    """Why the libraries would abort the process; empty if they would not."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY or most >= LEAST_SPACE:
        return ""
    return (
        f"`ulimit -v` allows {most / 1e9:.1f} GB of addresses, irtjax needs"
        f" {LEAST_SPACE / 1e9:g} GB: raise it with `ulimit -v unlimited`, and limit"
        " memory by a control group instead"
    )


def _listen() -> None:
    """Makes sure that Ctrl-C ends the command, at any moment.

    Raised in a callback, as of JAX at garbage collection, `KeyboardInterrupt` is only
    printed: it is raised again, each second, until the end. Raised in the import of a
    compiled module it can abort the process: it waits for the end of the import, and is
    raised by the next import or by a thread that looks each millisecond. A trace
    function would find that end at once, but one that is set while modules are imported
    makes Python 3.11 crash.
    """
    import _thread
    import builtins
    import signal
    import sys
    import threading
    import time

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # A command in the background ignores it.
    unraisable, importing, due = sys.unraisablehook, builtins.__import__, [0.0]

    def insist() -> None:
        while True:
            time.sleep(0.001)
            if time.monotonic() >= due[0]:
                _thread.interrupt_main()

    def interrupt(_: int, frame: FrameType | None) -> None:
        if not due[0]:
            due[0] = time.monotonic()
            threading.Thread(target=insist, daemon=True).start()
        if within_import(frame):
            builtins.__import__ = import_or_end
        else:
            end()

    def import_or_end(*arguments: Any, **settings: Any) -> Any:
        here = threading.current_thread() is threading.main_thread()
        if here and not within_import(sys._getframe(1)):
            end()
        return importing(*arguments, **settings)

    def within_import(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def end() -> None:
        builtins.__import__ = importing
        due[0] = time.monotonic() + 1
        raise KeyboardInterrupt

    def quiet(event: sys.UnraisableHookArgs) -> None:
        if not issubclass(event.exc_type, KeyboardInterrupt):
            unraisable(event)

    signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = quiet


def _leave(code: object) -> None:
    """Ends the process without the destructors of the libraries that it has loaded.

    Those of pyarrow and jaxlib, one after the other, abort a process that ends soon
    after it has read a CSV file (1 to 4 times in 30; exit status 134 in place of ours).
    """
    import atexit
    import contextlib
    import errno
    import os
    import signal
    import sys

    # From here on there is nothing to interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    status = code if isinstance(code, int) else 0 if code is None else 1
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            # Whoever read the output has gone, or the disk is full.
            status = status or 1
            if isinstance(error, OSError) and error.errno != errno.EPIPE:
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(f"irtjax: standard output: {error.strerror}\n")
    os._exit(status)
