"""`add`: new subjects into the folder of a fit, on its scale or by a new calibration.

The items stay as they are where that is right: then nobody else's ability changes.
They are fitted again where the responses ask for it (`why_refit`), on the scale of
before (`changed_items`). What the fit was before is kept as a snapshot. Processes that
add to one folder wait for each other, and one that finds the fit replaced meanwhile
starts again, so that nothing is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.drift import drift_sentence, drifted_items
from irtjax.calibration.score import MOST_RANKED, score
from irtjax.calibration.score_curve import why_not_ranked
from irtjax.data import ResponseTable, read, writing
from irtjax.data.fit_folder import RESPONSES, load_responses
from irtjax.data.frames import HasTable
from irtjax.data.reading.merge import merge
from irtjax.data.reading.options import ReadOptions, as_typed, of_fit
from irtjax.data.reversal import aligned
from irtjax.data.wording import are, counted, listing
from irtjax.storage.changed_items import named_by_content, on_scale_of
from irtjax.storage.folder import load, save
from irtjax.storage.snapshots import (
    FOLDER,
    saved_at,
    snapshot_of,
    version_of,
    without,
    write_snapshot,
)

REFIT = ("auto", "always", "never")
REQUESTED = "requested"
#: Share of the subjects that items were fitted on, from which new ones ask for another
#: fit: errors of the items fall with the number of subjects.
MANY = 0.2
#: Seconds to wait for other processes that add to the same folder.
PATIENCE = 600.0
#: Attempts, where other commands replace the fit meanwhile.
_TRIES = 5


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Added(HasTable):
    """What `add` did.

    Attributes:
        fit: The fit as it is now.
        subjects: Names of the subjects that are new.
        refit: Why the items were fitted again; empty where they stayed as they were.
        notes: What was done with the responses.
        changed: Whether the folder was written.
    """

    fit: Calibration
    subjects: tuple[str, ...]
    refit: str
    notes: tuple[str, ...]
    changed: bool

    @property
    def table(self) -> Any:
        """The subjects of the fit as it is now, as `fit.abilities` has them."""
        return self.fit.abilities.table

    @property
    def sentences(self) -> list[str]:
        """What was done, in words."""
        added = f"Added: {listing(self.subjects, 3)}." if self.subjects else ""
        refit = f"The items were fitted again: {self.refit}." if self.refit else ""
        notes = [f"{note[:1].upper()}{note[1:]}." for note in self.notes]
        return [x for x in (added, refit, *notes) if x]

    def _text(self) -> str:
        return self.fit._text()

    @property
    def advised(self) -> str:
        """Why the items should be fitted again, although they were not; or nothing."""
        return advised(self.fit)


def advised(fit: Calibration) -> str:
    """Why the items of a fit should be fitted again, or nothing."""
    return str(fit.options.get("advised") or "")


def add(
    folder: str | Path,
    new: Any,
    *,
    refit: str = "auto",
    extras: Callable[[Calibration], Sequence[Callable[[Path], None]]] | None = None,
    read_new: Callable[[Calibration], ResponseTable] | None = None,
) -> Added:
    """Adds subjects to the fit in a folder, whole or not at all.

    Args:
        folder: The folder, whose fit is replaced; a snapshot of before is kept.
        new: Responses of the new subjects: a `ResponseTable`, or anything that
            `irtjax.read` takes; paths are read with the options of the fit's data.
            Responses that the fit has already are left out.
        refit: "auto" fits the items again where the scale asks for it: new items, many
            new subjects, further responses of known ones, or items that drifted
            (`calibration.drift`). "always" and "never" as they say.
        extras: Functions, of the new fit, that write more files into a given folder.
        read_new: Reads `new`, in place of `irtjax.read`.

    Raises:
        ValueError: If responses contradict those of the fit, or cannot be scored on its
            items while its items cannot be fitted again.

    >>> import tempfile, irtjax
    >>> import numpy as np
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> old, new = table.select(subjects=np.arange(4)), table.select(subjects=[4])
    >>> fit = irtjax.fit(old, "rasch")
    >>> folder = irtjax.save(fit, tempfile.mkdtemp(), responses=old)
    >>> add(folder, new).subjects, len(irtjax.load(folder).subject_names)
    (('subject 5',), 5)
    """
    if refit not in REFIT:
        raise ValueError(f"refit={refit!r} is not one of {', '.join(REFIT)}")
    folder = writing.full_path(folder)
    load(folder)  # Refuses what is no fit before anything is made there.
    with writing.reserved(folder / FOLDER, PATIENCE):
        for _ in range(_TRIES):
            version = version_of(folder)
            fit = load(folder)
            table = _read(fit, new) if read_new is None else read_new(fit)
            responses = (
                load_responses(folder) if (folder / RESPONSES).is_file() else None
            )
            done, joined = _grown(fit, responses, table, refit)
            if not done.changed:
                return done
            if _commit(folder, version, fit, done, joined, extras):
                return done
    raise ValueError(f"other commands replace the fit in {folder} all the time: wait")


def _read(fit: Calibration, new: Any) -> ResponseTable:
    """The new responses, in the directions of the fit."""
    table = new
    if not isinstance(new, ResponseTable):
        table = read(new, **as_typed(of_fit(fit.options)))
    return aligned(table, fit.reversed_scores, fit.item_names.tolist())


def _commit(folder, version, fit, done: Added, joined, extras) -> bool:
    """Writes snapshot and fit, unless another command has replaced the fit."""
    with writing.reserved(folder, PATIENCE):
        if version_of(folder) != version:
            return False
        write_snapshot(snapshot_of(fit, saved_at(folder)), folder)
        files = [] if extras is None else extras(done.fit)
        save(done.fit, folder, overwrite=True, responses=joined, extras=files)
    return True


def _grown(
    fit: Calibration, stored: ResponseTable | None, new: ResponseTable, refit: str
) -> tuple[Added, ResponseTable | None]:
    """The fit with new subjects, and all responses if they are kept."""
    new, renamed = named_by_content(new, fit.item_contents)
    part, notes = without_repeated(fit, stored, new)
    notes = (*renamed, *notes)
    if part is None and refit == "always" and not _cannot_refit(fit, stored):
        assert stored is not None
        again, linked = _refitted(fit, stored, REQUESTED)
        return Added(again, (), REQUESTED, (*notes, *linked), True), stored
    if part is None:
        return Added(fit, (), "", notes, False), stored
    new, joined = part, None
    names = without(new.subjects.tolist(), fit.subject_names.tolist())
    if stored is not None:
        joined = merge([stored, new], ReadOptions())
        joined = joined.replace(
            notes=stored.notes, sources=(*stored.sources, *new.sources)
        )
    reason, cannot = why_refit(fit, stored, new), _cannot_refit(fit, joined)
    fixed, scored, drifted = _cannot_fix(fit, new), None, []
    if not (reason or fixed or refit == "always"):
        scored = score(fit, new)
        drifted = _drifted(fit, scored.whole, new if joined is None else joined)
        reason = drift_sentence(drifted)
    advised = ""
    if refit == "always":
        reason = reason or REQUESTED
    elif reason and not fixed and (cannot or refit == "never"):
        why = f": {cannot}" if cannot else ", as requested"
        notes = (*notes, f"the items stay as they are, although {reason}{why}")
        advised = reason
    if reason and not advised and refit != "never":
        if cannot:
            raise ValueError(f"the items cannot be fitted again: {cannot}")
        assert joined is not None
        again, linked = _refitted(fit, joined, reason, drifted)
        return Added(again, names, reason, (*notes, *linked), True), joined
    if fixed:
        raise ValueError(
            f"new subjects cannot be added to the items as they are: {fixed}"
        )
    scored = score(fit, new) if scored is None else scored
    assert scored.whole is not None
    record = {"added": [*fit.options.get("added", ()), *names]}
    record |= {"calibrated": _calibrated(fit), "advised": advised}
    changes: Any = {"options": {**fit.options, **record}}
    if joined is not None:
        changes["data_hash"] = joined.data_hash()
    whole = dataclasses.replace(scored.whole, **changes)
    left = [note for note in scored.notes if "not in the fit" in note]
    return Added(whole, names, "", (*notes, *left), True), joined


def _calibrated(fit: Calibration) -> int:
    """The number of subjects that the items were fitted on."""
    return int(fit.options.get("calibrated") or len(fit.subject_names))


def without_repeated(
    fit: Calibration, stored: ResponseTable | None, new: ResponseTable
) -> tuple[ResponseTable | None, tuple[str, ...]]:
    """The new responses without those that the fit has; None if there are no others.

    Raises:
        ValueError: A response differs from that of the fit.
    """
    shared = [x for x in new.subjects.tolist() if x in {*fit.subject_names.tolist()}]
    if not shared:
        return new, ()
    if stored is None:
        raise ValueError(
            f"{shared[0]!r:.80} is in the fit, which does not keep its responses: leave"
            " it out (--leave-out NAME), or give it another name"
        )
    items = [x for x in new.items.tolist() if x in {*stored.items.tolist()}]
    pair = [table.select(subjects=shared, items=items) for table in (stored, new)]
    seen = [_seen(table) for table in pair]
    shared_cells = seen[0] & seen[1]
    shares = [_share(table) for table in pair]
    wrong = np.argwhere(shared_cells & ~np.isclose(*shares, rtol=0, atol=1e-9))
    if len(wrong):
        row, column = wrong[0]
        old, now = (share[row, column] for share in shares)
        raise ValueError(
            f"{shared[row]!r:.80}, item {items[column]!r:.80}: the response is {now:g},"
            f" and {old:g} in the fit: leave the model out (--leave-out NAME), or give"
            " it another name"
        )
    # Cells that both have are those of the fit.
    observed = _seen(new).copy()
    rows = np.flatnonzero(np.isin(new.subjects, shared))
    columns = np.flatnonzero(np.isin(new.items, items))
    order = [new.subjects[rows].tolist().index(x) for x in shared]
    place = [new.items[columns].tolist().index(x) for x in items]
    observed[np.ix_(rows[order], columns[place])] &= ~shared_cells
    left = np.flatnonzero(observed.any(axis=1))
    note = (
        f"{counted(len(shared), 'model')} of these {are(len(shared))} in the fit"
        " already, with the same responses"
    )
    if not left.size:
        return None, (note,)
    values = np.where(observed, new.values, 0)
    trials = None if new.trials is None else np.where(observed, new.trials, 0)
    part = new.replace(values=values, observed=observed, trials=trials)
    return part.select(subjects=left), (note,)


def _seen(table: ResponseTable) -> np.ndarray:
    """The mask of a table, `[subjects, items]`."""
    shape = table.num_subjects, table.num_items
    return np.broadcast_to(True if table.observed is None else table.observed, shape)


def _share(table: ResponseTable) -> np.ndarray:
    """Responses, as shares of their trials."""
    trials = 1 if table.trials is None else np.maximum(table.trials, 1)
    return table.values / trials


def why_refit(
    fit: Calibration, stored: ResponseTable | None, new: ResponseTable
) -> str:
    """Why the items should be fitted again with new subjects, or nothing."""
    unable = why_not_ranked(fit)
    if unable:
        return unable
    items = fit.item_names if stored is None else stored.items
    items = without(new.items.tolist(), items.tolist())
    if items:
        return f"{counted(len(items), 'item')} are new ({listing(items, 3)})".replace(
            "1 item are", "1 item is"
        )
    shared = [x for x in new.subjects.tolist() if x in {*fit.subject_names.tolist()}]
    if shared:
        return f"there are further responses of {listing(shared, 3)}"
    count = len(fit.options.get("added", ())) + new.num_subjects
    before = _calibrated(fit)
    if count >= MANY * before:
        models = counted(before, "model")
        return f"{count:,} models were added to the {models} of the last calibration"
    return ""


def _drifted(
    fit: Calibration, whole: Calibration | None, table: ResponseTable
) -> list[str]:
    """Items that drifted since the calibration.

    `whole` is the fit with the new subjects; of those that were added before it needs
    responses in the table too.
    """
    if whole is None:
        return []
    calibrated = {*fit.subject_names.tolist()} - {*fit.options.get("added", ())}
    added = [name for name in table.subjects.tolist() if name not in calibrated]
    return drifted_items(whole, table.select(subjects=added))


def _cannot_fix(fit: Calibration, new: ResponseTable) -> str:
    """Why new subjects cannot be scored on the items as they are, or nothing."""
    if why := why_not_ranked(fit):
        return why
    if any(x in {*fit.subject_names.tolist()} for x in new.subjects.tolist()):
        return "there are further responses of models that it has: use refit"
    if len(fit.subject_names) + new.num_subjects > MOST_RANKED:
        return f"there are more than {MOST_RANKED:,} models"
    return ""


def _cannot_refit(fit: Calibration, joined: ResponseTable | None) -> str:
    """Why the items cannot be fitted again, or nothing."""
    if joined is None:
        return "the fit does not keep its responses; run `irtjax run` with all logs"
    if fit.options.get("job", True) is None:
        return "the fit has parts of your own; run `irtjax fit` with all logs"
    return ""


def _refitted(
    fit: Calibration, table: ResponseTable, reason: str, drifted: Sequence[str] = ()
) -> tuple[Calibration, tuple[str, ...]]:
    """Another fit, as the first was made, of all responses, on the scale of the first.

    The second value states how the scales were linked, without the items that drifted.
    """
    from irtjax.fitting.fit import fit as calibrate

    job = fit.options.get("job") or {
        "model": fit.options["model"],
        "method": fit.options["method"],
    }
    result = calibrate(
        table,
        job["model"],
        job["method"],
        level=fit.level,
        key=int(job.get("seed") or 0),
        dtype=np.asarray(fit.parameters.items[0]).dtype,
        max_steps=job.get("max_steps"),
        **job.get("settings", {}),
    )
    names = ("seed", "device", "sources", "reading", "configuration", "command", "job")
    options = {name: fit.options[name] for name in names if name in fit.options}
    options |= result.options | {"calibrated_because": reason}
    return on_scale_of(fit, dataclasses.replace(result, options=options), drifted)
