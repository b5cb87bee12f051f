"""Subjects are found by the names that tables show."""

import numpy as np
import pytest

from irtjax.data.matching import find_names

NAMES = np.array(["org/llama", "b/qwen", "c/qwen", "phi", "x/phi", "a/b/deep", "end/"])


def test_a_short_name_is_that_of_one_subject_only():
    wanted = ["llama", "org/llama", "phi", "x/phi", "deep", "end"]
    assert find_names(NAMES, wanted, "subject").tolist() == [0, 0, 3, 4, 5, 6]
    # Of two subjects, of none, a part of a name, and of items.
    for name in ("qwen", "gemma", "lla", "b/deep"):
        with pytest.raises(ValueError, match="no subject is called"):
            find_names(NAMES, [name], "subject")
    with pytest.raises(ValueError, match="no item is called 'llama'"):
        find_names(NAMES, ["llama"], "item")
