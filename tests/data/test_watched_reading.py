"""Reading many files reports how many are done."""

from pathlib import Path

import irtjax
from irtjax.data.reading.open import _Watched
from irtjax.numerics.progress import watching


def test_files_of_a_folder_are_counted(tmp_path):
    for k in range(4):
        text = "".join(f"m{k},q{j},{j % 2}\n" for j in range(3))
        (tmp_path / f"{k}.csv").write_text(f"model,item,correct\n{text}")
    found = []
    with watching(lambda share, name: found.append((share, name))):
        table = irtjax.read(tmp_path)
    assert table.num_subjects == 4
    assert (0.75, "file 4 of 4") in found and found[-1] == (None, "")


def test_a_log_reader_reports_the_files_it_has_read():
    paths = _Watched([Path("a"), Path("b")])
    shares = []
    with watching(lambda share, name: shares.append(share)):
        assert [path.name for path in paths] == ["a", "b"]
    assert shares == [0, 0.5, 1, None]
    assert len(paths) == 2 and paths[1] == Path("b")
