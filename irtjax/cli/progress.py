"""Progress on standard error, for whatever takes more than two seconds."""

from __future__ import annotations

import math
import os
import stat
import sys
import threading
import time
from contextlib import ExitStack
from typing import TextIO

#: Seconds of silence first, and between two lines where there is no terminal: the
#: latter grow by half each time, so that the log of a long run stays short.
PATIENCE = 2.0
INTERVAL = 5.0
LONGEST = 60.0
#: Share done from which the time left is estimated.
LEAST_SHARE = 0.02


class ProgressLine:
    """Shows the phase, iteration, objective, share done and times of what is running.

    On a terminal it is one line that is rewritten; in a file a line now and then, and
    nothing in a pipe or if `quiet`. Pass it as the `progress` of `irtjax.fit`. Within
    its block it watches the loops of `irtjax.numerics.progress`.
    """

    def __init__(
        self,
        quiet: bool = False,
        stream: TextIO | None = None,
        patience: float = PATIENCE,
        interval: float = INTERVAL,
    ) -> None:
        self.quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._patience = patience
        self._interval = interval
        self._begun = time.perf_counter()
        self._phase = ""
        self._phase_begun = self._begun
        self._details = ""
        self._part = ""
        #: Share done and when it was noted, in seconds without those of compilation.
        self._share: tuple[float, float] | None = None
        self._loop_begun = 0.0
        self._width = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._watch = ExitStack()

    def __enter__(self) -> ProgressLine:
        """Starts the clock."""
        if not (self.quiet or _is_pipe(self._stream)):
            from irtjax.numerics.progress import watching

            self._watch.enter_context(watching(self.share))
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stops, and clears the line."""
        self._watch.close()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()

    def __call__(
        self,
        phase: str,
        step: int = 0,
        objective: float | None = None,
        residual: float | None = None,
        seconds: float | None = None,
    ) -> None:
        """Shows the current phase, such as "read" or "em"; see `irtjax.fit`.

        `seconds` is not used: the clock here runs between calls too.
        """
        if phase != self._phase:
            self._phase, self._phase_begun = phase, time.perf_counter()
        parts = [f"iteration {step}"] if step else []
        if objective is not None and math.isfinite(objective):
            parts.append(f"objective {objective:,.3f}")
        if residual is not None and math.isfinite(residual):
            parts.append(f"residual {residual:.2g}")
        self._details = "  ".join(parts)

    def share(self, done: float | None, part: str = "") -> None:
        """Shows the share done of a loop and its part; None at its end."""
        now = time.perf_counter() - _compiled()
        if done is None:
            self._share, self._part = None, ""
            return
        if self._share is None:
            self._loop_begun = now
        self._share, self._part = (done, now), part

    def line(self) -> str:
        """Returns the line as it would be shown now."""
        now = time.perf_counter()
        # What matters most first: a narrow screen cuts the end.
        part = "" if self._part == self._phase else self._part
        parts = [self._named(now), part, self._left(now - _compiled()), _compiling()]
        parts += [self._details, f"{now - self._begun:.0f} s"]
        return "  ".join(x for x in parts if x)

    def _named(self, now: float) -> str:
        """The phase, with its own time where no share shows that it goes on."""
        own = now - self._phase_begun
        if self._share is not None or own < 1 or self._phase_begun - self._begun < 1:
            return self._phase
        return f"{self._phase} for {duration(own)}"

    def _left(self, now: float) -> str:
        """The share done and the time left, if the parts to come are like the past."""
        if self._share is None:
            return ""
        done, noted = self._share
        text = f"{math.floor(100 * done + 1e-6)} % done"
        if not LEAST_SHARE <= done < 1:
            return text
        left = (noted - self._loop_begun) * (1 - done) / done - (now - noted)
        # Below a second, or later than expected, it is not known.
        return f"{text}, about {duration(left)} left" if left >= 1 else text

    def _tick(self) -> None:
        """Writes the line again and again until it is stopped, in a thread."""
        terminal = self._stream.isatty()
        if self._stop.wait(self._patience):
            return
        interval = self._interval
        while True:
            text = self.line()
            if terminal:
                text = text[: _columns(self._stream) - 1]
                self._stream.write("\r" + text.ljust(self._width))
                self._width = max(self._width, len(text))
            else:
                self._stream.write(text + "\n")
            self._stream.flush()
            if self._stop.wait(0.25 if terminal else interval):
                return
            interval = min(1.5 * interval, LONGEST)


def _compiling() -> str:
    """What JAX does where it prepares a program and does not run one yet."""
    # Imported where JAX is: `irtjax --help` needs none of it.
    module = sys.modules.get("irtjax.numerics.compiling")
    is_compiling = getattr(module, "is_compiling", None)
    return "compiling" if is_compiling is not None and is_compiling() else ""


def _compiled() -> float:
    """Seconds that compilation has taken: the parts to come need not compile again."""
    module = sys.modules.get("irtjax.numerics.compiling")
    # Another thread may be importing it.
    seconds = getattr(module, "seconds", None)
    return 0.0 if seconds is None else seconds()


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(41.2), duration(300), duration(5000)
    ('41 s', '5 min', '1 h 23 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _columns(stream: TextIO) -> int:
    """The width of a terminal: a longer line could not be rewritten."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 200
    except (OSError, ValueError, AttributeError):
        return 200


def _is_pipe(stream: TextIO) -> bool:
    """Whether another program reads the stream, which no progress should disturb."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
