"""`report.html` in WebKit, the engine of Safari, where Chromium's tests have more.

Needs Debian's webkit2gtk-driver, `pip install selenium`, and a display such as that of
`xvfb-run`; `.ci/run` does not install them.
"""

import os
import shutil
from pathlib import Path

import pytest

from irtjax.report import page_data, report_page, write_page
from tests.report.pages import hostile_fit
from tests.small_fits import small_fit, small_table

pytestmark = pytest.mark.slow
selenium = pytest.importorskip("selenium.webdriver", reason="selenium is missing")
DRIVER = shutil.which("WebKitWebDriver")
BROWSERS = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))


@pytest.fixture(scope="module")
def browser():
    if DRIVER is None or not BROWSERS:
        pytest.skip("WebKitWebDriver is missing: apt install webkit2gtk-driver")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        pytest.skip("there is no display: run in xvfb-run")
    from selenium.webdriver.webkitgtk.options import Options
    from selenium.webdriver.webkitgtk.service import Service

    options = Options()
    options.binary_location = str(BROWSERS[-1])
    options.add_argument("--automation")
    found = selenium.WebKitGTK(options=options, service=Service(DRIVER))
    yield found
    found.quit()


@pytest.fixture
def open_page(browser, tmp_path):
    def opened(text: str):
        browser.get(write_page(tmp_path / "page.html", text).as_uri())
        return lambda script, *given: browser.execute_script(script, *given)

    return opened


#: A column of the leaderboard or of the items, as it is shown.
COLUMN = """
const [table, key] = arguments;
const heads = [...document.querySelectorAll(`#${table} th`)];
const place = heads.findIndex(head => head.dataset.key === key) + 1;
const cells = document.querySelectorAll(`#${table} tbody td:nth-child(${place})`);
return [...cells].map(cell => cell.innerText);
"""
TYPE = """
const [id, text] = arguments, field = document.getElementById(id);
field.value = text;
field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input",
  {bubbles: true}));
"""
CLICK = "document.querySelector(arguments[0]).click()"
WIDTH = "return document.querySelector(arguments[0]).getBoundingClientRect().width"
TEXT = "return document.querySelector(arguments[0]).innerText"


def test_the_page_works_in_webkit(open_page):
    fit = small_fit()
    run = open_page(report_page(fit, data=small_table()))
    names = page_data.labels(row["subject"] for row in fit.rank().rows())
    assert run(COLUMN, "board", "name") == names
    run(CLICK, "#board th[data-key=accuracy] button")
    shown = [float(x.split()[0]) for x in run(COLUMN, "board", "accuracy")]
    assert shown == sorted(shown, reverse=True)
    run(TYPE, "board-q", "MODEL_1")
    wanted = {name for name in names if "model_1" in name}
    assert set(run(COLUMN, "board", "name")) == wanted
    assert run(TEXT, "#board-n") == "11 of 24 subjects"
    run(TYPE, "first", "0")
    run(TYPE, "second", "23")
    assert "significantly ahead" in run(TEXT, "#versus")
    run(CLICK, "#list .link")
    for drawn in ("#item path.line", "#scatter", "#chart"):
        assert run(WIDTH, drawn) > 100, drawn


def test_hostile_names_do_nothing_in_webkit(open_page, browser):
    fit, data = hostile_fit()
    texts = {str(fit.item_names[1]): "<script>document.title = 'owned'</script>"}
    run = open_page(report_page(fit, data=data, texts=texts))
    names = run(COLUMN, "board", "name")
    assert "<script>document.title='owned'</script>" in names
    assert run("return document.querySelectorAll('img').length") == 0
    run(CLICK, "#list .link")
    run(TYPE, "first", "3")
    assert browser.title == "b0 and b1"
