"""Items divided by groups of subjects."""

import numpy as np

from irtjax.data.split_items import split_items
from irtjax.data.table import ResponseTable


def test_what_is_known_of_an_item_is_that_of_its_parts():
    made = ResponseTable.from_arrays([[1, 0], [0, 1], [1, 1]], items=["x", "y"])
    table = made.replace(
        subject_facets={"family": np.array(["a", "a", "b"])},
        item_contents={"x": "first", "y": "second"},
        reversed_scores={"y": "1 - value"},
    )
    divided = split_items(table, ["y"], by="family")
    assert divided.item_contents == {"x": "first", "y [a]": "second", "y [b]": "second"}
    assert divided.reversed_scores == {"y [a]": "1 - value", "y [b]": "1 - value"}
    assert divided.item_texts == {} and divided.item_facets["item"][-1] == "y"
