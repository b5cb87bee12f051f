"""Commands killed, starved of disk and memory, and run twice at once: what is left?

See README.md in this folder. Small by default; --full is the published run.
"""

import argparse
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments.robustness.outputs import Outputs, State, is_whole  # noqa: E402
from experiments.robustness.processes import Command, limit, preload  # noqa: E402

#: Commands that compute for seconds, and what they write into `{out}`.
COMMANDS = {
    "fit": "fit {data} --out {out}",
    "fit-nuts": "fit {few} --out {out} --method nuts --draws 200 --warmup 200",
    "audit": "audit {data} --out {out}",
    "shrink": "shrink {data} --size 8 --rule random --folds 3 --out {out}",
    "adapt": "adapt {saved} --num-subjects 30 --num-items 10 --out {out}",
    "stability": "stability {data} --num 8 --out {out}",
    "dimensions": "dimensions {data} --most 2 --out {out}",
    "simulate": "simulate --num-subjects 300 --num-items 80 --out {out}/r.csv",
    "score": "score {data} --fit {saved} --out {out}/s.csv",
    "predict": "predict {saved} --out {out}/p.csv",
    "clusters": "clusters {factors} {data} --out {out}",
    "report": "report {saved} {data} --out {out}/r.html",
    "compare": "compare subject_1 subject_2 {data} --fit {saved} --out {out}",
    "demo": "demo --out {out} --overwrite",
    "run": "run {data} --size 8 --out {out}",
}
#: Those that write one file or few into a folder that must exist.
IN_FOLDER = ("simulate", "score", "predict", "report")
#: Each of so many killed commands is run again in its folder, to the end.
RERUN = 5
#: The same of sampling, which then resumes from its checkpoint.
RERUN_SAMPLING = 2
#: The earlier outputs come from other data, so that every file differs.
BEFORE = 7


class Work:
    """The folder of a run: data, a saved fit, and each command's outputs."""

    def __init__(self, place: Path) -> None:
        self.place, self.log = place, place / "log.txt"
        self.names = {"data": place / "a.csv", "few": place / "b.csv"}
        self.names |= {"saved": place / "saved", "factors": place / "factors"}
        #: What commands read that write the earlier outputs.
        self.earlier = dict.fromkeys(("data", "few"), place / "c.csv")
        self.earlier |= {x: place / f"{x}-c" for x in ("saved", "factors")}

    def prepare(self) -> None:
        """Simulates responses and fits them."""
        for name, size, seed in (("a", 40, 0), ("b", 12, 1), ("c", 40, BEFORE)):
            to = self.place / f"{name}.csv"
            sizes = f"--num-subjects {size} --num-items 25"
            self.run(f"simulate --out {to} {sizes} --seed {seed}")
        for names in (self.names, self.earlier):
            for fit, model in (("saved", "auto"), ("factors", "factor")):
                self.run(f"fit {names['data']} --out {names[fit]} --model {model}")

    def run(self, command: str, limit_seconds: float = 300, setup=None):
        """Runs a command to its end."""
        return self.start(command, setup).wait(limit_seconds)

    def start(self, command: str, setup=None, log: Path | None = None) -> Command:
        """Starts a command."""
        words = [*command.split(), "--quiet"]
        return Command(words, log or self.log, setup)

    def command(self, name: str, out: Path, earlier: bool = False) -> str:
        """The command of a name, or one whose outputs differ from it."""
        names = self.earlier if earlier else self.names
        text = COMMANDS[name]
        if earlier and not any(f"{{{x}}}" in text for x in names):
            text += f" --seed {BEFORE}"
        return text.format(**names, out=out)

    def outputs(self, name: str) -> Outputs:
        """What a command writes, and earlier outputs in whose place it writes."""
        new, old = (self.place / f"{name}.{x}" for x in ("new", "old"))
        seconds = 0.0
        for folder, earlier in ((old, True), (new, False)):
            for _ in range(2 if folder == new else 1):  # The second with a warm cache.
                shutil.rmtree(folder, ignore_errors=True)
                if name in IN_FOLDER:
                    folder.mkdir()
                ended = self.run(self.command(name, folder, earlier))
                assert ended.status == 0, (name, ended)
                seconds = ended.seconds
        return Outputs(name, old, new, seconds, IN_FOLDER)


def killed(work: Work, outputs: Outputs, count: int, rng: random.Random) -> dict:
    """Kills a command at random moments: of its run, its writing, and its moves."""
    found = dict.fromkeys(("kills", "in writing", "in moves", "old", "new"), 0)
    found |= dict.fromkeys(("parts", "lost", "mixed", "left behind"), 0)
    found |= dict.fromkeys(("reruns", "failed"), 0)
    sampling = outputs.name == "fit-nuts"
    setup = save_often if sampling else None
    if sampling:
        found |= dict.fromkeys(("checkpoints", "damaged", "resumed", "equal"), 0)
    # A command can end before its moment, and is then run again.
    for k in range(3 * count):
        if found["kills"] == count:
            break
        target = outputs.begin(work.place / "out", empty=k % 4 == 3)
        # Sampling leaves its checkpoint, from which the same command resumes.
        checkpoint = target.with_name(f"{target.name}.nuts.npz")
        checkpoint.unlink(missing_ok=True)
        running = work.start(work.command(outputs.name, target), setup)
        seen = lambda: any(map(writes, [*outputs.places(target), target.parent]))  # noqa: B023
        # Commands in parts have moves of each.
        part = target / rng.choice(outputs.parts) if outputs.parts else target
        if k % 3 == 0:
            until(running, lambda: False, rng.uniform(0, outputs.seconds))
        elif k % 3 == 1:
            until(running, seen)
            begun = time.perf_counter() - running.began
            left = max(outputs.seconds - begun, 0.1)
            until(running, lambda: False, rng.uniform(0, left))
            found["in writing"] += seen()
        else:
            until(running, lambda: moves(part))  # noqa: B023
            time.sleep(rng.uniform(0, 0.002))
        done = running.ended()
        running.kill()
        running.wait()
        found["kills"] += not done
        found["in moves"] += any(map(moves, outputs.places(target)))
        found[outputs.state(target).value] += 1
        found["left behind"] += outputs.leftovers(target)
        resume = " --resume" if checkpoint.exists() else ""
        if resume:
            found["checkpoints"] += 1
            found["damaged"] += not is_whole(checkpoint)
        if k % (RERUN_SAMPLING if sampling else RERUN) == 0:
            ended = work.run(work.command(outputs.name, target) + resume)
            whole = ended.status == 0 and outputs.state(target) is State.NEW
            found["reruns"] += 1
            found["failed"] += not whole
            if resume:
                found["resumed"] += 1
                found["equal"] += whole and outputs.equal(target)
            if not whole:
                print(outputs.name, ended, flush=True)
    return found


def save_often() -> None:
    """A checkpoint about three times a second, in place of every 20 seconds."""
    from irtjax.estimators.posterior import sample

    sample.CHUNK_SECONDS, sample.SAVE_SECONDS, sample.SAVE_SHARE = 0.1, 0.2, 0.5


def until(running: Command, sign: Callable[[], bool], seconds: float = 300) -> None:
    """Waits for a sign, the end of a command, or a time."""
    end = time.perf_counter() + seconds
    while not (sign() or running.ended()) and time.perf_counter() < end:
        time.sleep(0.0002)


def writes(folder: Path) -> bool:
    """Whether a process writes into a folder."""
    try:
        return any(name.startswith(".irtjax-") for name in os.listdir(folder))
    except OSError:
        return False


def moves(folder: Path) -> bool:
    """Whether a process has planned its moves in a folder, and not finished them."""
    return any(folder.glob(".irtjax-*/moves"))


def full_disk(work: Work, outputs: Outputs, count: int) -> dict:
    """Runs a command on file systems of growing sizes."""
    found = {"sizes": count, "refused in one line": 0, "in part": 0, "done": 0}
    found |= dict.fromkeys(("other ends", "old", "new", "parts", "lost", "mixed"), 0)
    found["left behind"] = 0
    size = sum(path.stat().st_size for path in outputs.new.rglob("*"))
    for k in range(count):
        share = (k + 0.5) / count
        with disk(work.place / "disk", outputs, int(1.2 * share * size)) as place:
            target = outputs.begin(place / "out", empty=k % 4 == 3)
            small = limit("RLIMIT_FSIZE", int(share * size / 4))
            command = work.command(outputs.name, target)
            ended = work.run(command, setup=None if place.is_mount() else small)
            in_part = bool(outputs.parts) and ended.status == 1
            known = "in part" if in_part else ended.how
            known = known if known in found else "other ends"
            found[known] += 1
            if known == "other ends":
                print(outputs.name, ended)
            state = outputs.state(target)
            found[state.value] += 1
            found["left behind"] += outputs.leftovers(target)
            # A refused command has changed nothing, a finished one everything.
            if (ended.how == "done") != (state is State.NEW):
                found["lost"] += 1
    return found


class disk:
    """A file system with some bytes left next to earlier outputs, where we may mount.

    Elsewhere a folder; `full_disk` then limits the size of files.
    """

    def __init__(self, place: Path, outputs: Outputs, left: int) -> None:
        pages = [-(-p.stat().st_size // 4096) + 1 for p in outputs.old.rglob("*")]
        self.place, self.size = place, 4096 * (sum(pages) + 4) + left

    def __enter__(self) -> Path:
        self.place.mkdir(exist_ok=True)
        options = f"size={self.size}"
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(self.place)]
        subprocess.run(command, capture_output=True, check=False)
        return self.place

    def __exit__(self, *error: object) -> None:
        if self.place.is_mount():
            # At once for others, and in fact when the last file is closed.
            subprocess.run(["umount", "--lazy", str(self.place)], check=True)
        shutil.rmtree(self.place)


def two_at_once(work: Work, outputs: Outputs, count: int) -> dict:
    """Two commands write different outputs to one folder at the same time."""
    found = {"pairs": count} | dict.fromkeys(("both done", "old", "new", "parts"), 0)
    found |= dict.fromkeys(("lost", "mixed", "left behind"), 0)
    for k in range(count):
        target = outputs.begin(work.place / "out", empty=k % 2 == 1)
        running = [
            work.start(work.command(outputs.name, target, earlier), log=log)
            for earlier, log in ((True, work.log), (False, work.place / "log2.txt"))
        ]
        found["both done"] += all(one.wait().status == 0 for one in running)
        found[outputs.state(target, of_two=True).value] += 1
        found["left behind"] += outputs.leftovers(target)
    return found


#: Requests that no machine can meet, or that no one means.
ABSURD = (
    "simulate --out {out} --num-subjects 3000000 --num-items 3000000",
    "simulate --out {out} --num-subjects 1000000000000000000 --num-items 5",
    "simulate --out {out} --num-subjects 5 --num-items 100000000000000000000",
    "simulate --out {out} --model graded --categories 10000000000000",
    "fit {data} --out {out} --max-steps 1000000000000",
    "fit {data} --out {out} --method laplace --set order=10000000000",
    "fit {data} --out {out} --method nuts --draws 1000000000000",
    "fit {data} --out {out} --method nuts --chains 1000000000000",
    "fit {data} --out {out} --method mm --memory 1000000000000",
    "fit {data} --out {out} --model factor --factors 1000000000000",
    "fit {data} --out {out} --method neural --embedding-size 10000000000000",
    "fit {data} --out {out} --method neural --layers 10000000000000",
    "rank {saved} --draws 1000000000000",
    "adapt {saved} --num-subjects 1000000000000 --out {out}",
    "adapt {saved} --repeats 1000000000000 --icc 0.1 --out {out}",
    "shrink {data} --size 5 --folds 1000000000000 --out {out}",
    "stability {data} --num 1000000000000 --out {out}",
    "dimensions {data} --most 1000000000000 --out {out}",
)


def absurd_sizes(work: Work) -> list[dict]:
    """How requests of absurd sizes end, with all the memory of the machine."""
    rows = []
    for request in ABSURD:
        out = work.place / "absurd.csv"
        ended = work.run(request.format(out=out, **work.names), 60)
        words = request.format(out="OUT", data="FILE", saved="DIR").split()
        row = {"request": " ".join(words), "outcome": ended.how}
        row["seconds"] = round(ended.seconds, 1)
        row["message"] = ended.message.splitlines()[-1][:200] if ended.message else ""
        rows.append(row)
        print(rows[-1], flush=True)
        assert not out.exists()
    return rows


def surroundings(work: Work) -> list[dict]:
    """The first fit of a process without home, with bad caches, with little memory."""
    from experiments.robustness.surroundings import CASES, LIMITS, reference, tried

    rows, expected = [], reference(work)
    for name in CASES:
        rows.append(tried(work, name, expected))
        print(rows[-1], flush=True)
    for size in LIMITS:
        rows.append(tried(work, "ulimit -v", expected, size))
        print(rows[-1], flush=True)
    return rows


def main(arguments: list[str] | None = None) -> dict[str, list[dict]]:
    """Runs the parts and writes a table of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--sizes", type=int)
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--seed", default="", help="of the moments of the kills")
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS))
    parser.add_argument(
        "--parts", nargs="*", default=["kill", "disk", "pairs", "sizes", "surroundings"]
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    kills = given.kills or (100 if given.full else 4)
    sizes = given.sizes or (20 if given.full else 4)
    pairs = given.pairs or (10 if given.full else 2)
    warnings.filterwarnings("ignore", message=".*fork")
    tables: dict[str, list[dict]] = {}
    with tempfile.TemporaryDirectory(prefix="robustness-") as place:
        work = Work(Path(place))
        preload()
        work.prepare()
        for name in given.commands:
            if not {"kill", "disk", "pairs"} & set(given.parts):
                break
            outputs = work.outputs(name)
            head = {"command": name, "files": len(outputs.names)}
            head["seconds"] = round(outputs.seconds, 1)
            moments = random.Random(f"{name}{given.seed}")
            for part, run in (
                ("kill", lambda: killed(work, outputs, kills, moments)),  # noqa: B023
                ("disk", lambda: full_disk(work, outputs, sizes)),  # noqa: B023
                ("pairs", lambda: two_at_once(work, outputs, pairs)),  # noqa: B023
            ):
                if part in given.parts:
                    tables.setdefault(part, []).append({**head, **run()})
                    print(part, tables[part][-1], flush=True)
                    save(tables, given.out)
        if "sizes" in given.parts:
            tables["sizes"] = absurd_sizes(work)
            save(tables, given.out)
        if "surroundings" in given.parts:
            tables["surroundings"] = surroundings(work)
            save(tables, given.out)
    return tables


def save(tables: dict[str, list[dict]], out: Path | None) -> None:
    """Writes each table as CSV."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (out / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
