"""Parts of a table: names are distinct, fields are those of the whole."""

import numpy as np
import pytest

import irtjax


@pytest.mark.parametrize("wanted", [[0, 0], ["b", "b"], [-1, 1]])
def test_a_part_has_each_name_once(wanted):
    table = irtjax.ResponseTable.from_arrays(
        [[1, 0, 1], [1, 0, 0]], subjects=["a", "b"]
    )
    with pytest.raises(ValueError, match="occurs 2 times: subject names"):
        table.select(subjects=wanted)


def test_a_part_of_a_part_is_the_whole_again():
    values = np.array([[1, 0, 1], [1, np.nan, 0]])
    table = irtjax.ResponseTable.from_arrays(values, benchmark=["x", "y", "y"])
    turned = table.select(subjects=[1, 0], items=[2, 0, 1])
    assert turned.subjects.tolist() == table.subjects[::-1].tolist()
    assert turned.item_facets["benchmark"].tolist() == ["y", "x", "y"]
    again = turned.select(subjects=[1, 0], items=[1, 2, 0])
    assert again.data_hash() == table.data_hash() != turned.data_hash()
    np.testing.assert_array_equal(again.subject_accuracy(), [2 / 3, 1 / 2])
    np.testing.assert_array_equal(again.item_accuracy(), [1, 0, 1 / 2])
