"""Progress on standard error, for whatever takes more than two seconds."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TextIO

#: Seconds of silence first, and between two lines where there is no terminal: the
#: latter grow by half each time, so that the log of a long run stays short.
PATIENCE = 2.0
INTERVAL = 5.0
LONGEST = 60.0


class ProgressLine:
    """Shows the phase, iteration, objective and time of what is running.

    On a terminal it is one line that is rewritten; elsewhere (a log file) a line
    now and then, and nothing if `quiet`. Pass it as the `progress` of `irtjax.fit`.
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
        self._details = ""
        self._width = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> ProgressLine:
        """Starts the clock."""
        if not self.quiet:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stops, and clears the line."""
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
        self._phase = phase
        parts = [f"iteration {step}"] if step else []
        if objective is not None and math.isfinite(objective):
            parts.append(f"objective {objective:,.3f}")
        if residual is not None and math.isfinite(residual):
            parts.append(f"residual {residual:.2g}")
        self._details = "  ".join(parts)

    def line(self) -> str:
        """Returns the line as it would be shown now."""
        spent = f"{time.perf_counter() - self._begun:.0f} s"
        return "  ".join(x for x in (self._phase, self._details, spent) if x)

    def _tick(self) -> None:
        terminal = self._stream.isatty()
        if self._stop.wait(self._patience):
            return
        interval = self._interval
        while True:
            text = self.line()
            if terminal:
                self._stream.write("\r" + text.ljust(self._width)[:200])
                self._width = max(self._width, len(text))
            else:
                self._stream.write(text + "\n")
            self._stream.flush()
            if self._stop.wait(0.25 if terminal else interval):
                return
            interval = min(1.5 * interval, LONGEST)
