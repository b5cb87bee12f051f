"""Memory that arrays would need against the memory that is available.

Sizes come from options and from files. Where their product decides what is allocated,
the need is computed first: a request that cannot be met is refused in one line, before
the system swaps, ends the process (`std::bad_alloc`) or a library divides by an
overflown size.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def require_memory(needed: float, what: str, cure: str) -> None:
    """Refuses a computation whose arrays do not fit into the memory.

    Args:
        needed: Bytes that it needs at least.
        what: What needs them, at the beginning of the message.
        cure: What to do.

    Raises:
        ValueError: If fewer bytes are available. Where that is not known, a petabyte.

    >>> require_memory(8e3, "1,000 draws", "use fewer draws")
    >>> require_memory(8e18, "10^18 draws", "use fewer")
    Traceback (most recent call last):
    ...
    ValueError: 10^18 draws: 8,000,000 TB of memory needed, ... available: use fewer
    """
    available = available_memory()
    if needed > available:
        have = f"{in_words(available)} available"
        raise ValueError(f"{what}: {in_words(needed)} of memory needed, {have}: {cure}")


def available_memory() -> float:
    """Bytes that this process can still take: of the machine, its group, its limits."""
    limits = [1e15, *_of_machine(), *_of_groups(), *_of_limits()]
    return max(0.0, min(limits))


def in_words(size: float) -> str:
    """A number of bytes as people write it.

    >>> in_words(3.21e9)
    '3.2 GB'
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB")):
        if size >= unit:
            return (
                f"{size / unit:,.0f} {name}"
                if size >= 10 * unit
                else (f"{size / unit:.1f} {name}")
            )
    return f"{size / 1e6:,.0f} MB"


def _of_machine() -> list[float]:
    """Memory that is free, or is used for files only."""
    available = _fields(Path("/proc/meminfo")).get("MemAvailable")
    if available is not None:
        return [available]
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    return []


def _of_groups() -> list[float]:
    """What the control groups leave, as of a container or a batch job."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, place = line.split(":", 2)
            if kinds == "":
                root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
            elif "memory" in kinds.split(","):
                root = "/sys/fs/cgroup/memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            else:
                continue
            group = Path(root, place.lstrip("/"))
            # In a container the path may be that of the host.
            for folder in (group, *group.parents):
                limits += _left(folder, *names)
                if folder == Path(root):
                    break
    return limits


def _left(folder: Path, limit: str, used: str) -> list[float]:
    """Bytes that the limit of a control group leaves, in a list; none without one."""
    with contextlib.suppress(OSError, ValueError):
        most = float((folder / limit).read_text())  # "max" is none.
        spent = float((folder / used).read_text())
        with contextlib.suppress(OSError, ValueError):
            # Cached files are dropped before anything is refused.
            for line in (folder / "memory.stat").read_text().splitlines():
                name, value = line.split()
                spent -= float(value) * (name == "inactive_file")
        return [most - spent]
    return []


def _of_limits() -> list[float]:
    """What `ulimit -v` and `ulimit -d` leave."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    status, limits = _fields(Path("/proc/self/status")), []
    for kind, field in (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")):
        most = resource.getrlimit(getattr(resource, kind))[0]
        if most != resource.RLIM_INFINITY:
            limits.append(most - status.get(field, 0.0))
    return limits


def _fields(path: Path) -> dict[str, float]:
    """Fields in kB of a file of the system, in bytes."""
    fields = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                fields[name] = 1024 * float(value[:-3])
    return fields
