"""Draws the pictures of the documentation again: `python docs/images/make.py`.

The code of the tutorial writes logs. The pictures are figures that the commands of the
tutorial, of "Adaptive testing" and of "Small benchmarks" make of these logs, and two
views of pages in Chromium (playwright). Run it from any folder,
with irtjax installed. It takes about two minutes, and replaces the PNG files in its
folder.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    "fit logs --out calibrated --figures",
    "audit logs --fit calibrated --out audited",
    "adapt calibrated --num-items 30 --out adapted",
    "shrink logs --size 20 --stratify benchmark --sizes 5,10,20,40,80 --out small20",
    "demo --out demo",
    "run demo/results.csv --leave-out *-[138]*b --out report",
)
#: Picture of the documentation, and the figure of a command that it is.
PICTURES = {
    "leaderboard.png": "calibrated/abilities.png",
    "wright_map.png": "calibrated/wright_map.png",
    "test_information.png": "calibrated/test_information.png",
    "flagged_items.png": "audited/flagged_items.png",
    "adaptive.png": "adapted/adapt.png",
    "shrink.png": "small20/shrink.png",
}


def make(target: Path) -> None:
    """Runs the commands in a folder of their own, and copies their figures."""
    tutorial = (target.parent / "tutorial.md").read_text(encoding="utf-8")
    write_logs = re.findall(r"^```python\n(.*?)^```", tutorial, re.M | re.S)[0]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", write_logs], cwd=folder, check=True)
        for command in COMMANDS:
            line = [sys.executable, "-m", "irtjax", *command.split(), "--quiet"]
            subprocess.run(line, cwd=folder, check=True)
        for picture, figure in PICTURES.items():
            shutil.copyfile(Path(folder, figure), target / picture)
        photograph(Path(folder), target)


def photograph(folder: Path, target: Path) -> None:
    """Makes pictures of pages: the head of one, an item with its curve in the dark."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with sync_playwright() as started:
        options = {"executable_path": chromium, "args": ["--no-sandbox"]}
        browser = started.chromium.launch(**options)
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        page.goto(Path(folder, "report", "report.html").resolve().as_uri())
        page.screenshot(path=target / "report.png")
        page.goto(Path(folder, "demo", "report.html").resolve().as_uri())
        page.emulate_media(color_scheme="dark")
        page.locator("#reading .link").first.click()
        page.locator("#items").scroll_into_view_if_needed()
        page.evaluate("document.getElementById('items').scrollIntoView()")
        page.set_viewport_size({"width": 1100, "height": 880})
        page.screenshot(path=target / "report-items.png")
        browser.close()


if __name__ == "__main__":
    make(Path(__file__).resolve().parent)
