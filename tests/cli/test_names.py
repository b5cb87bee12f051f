"""One name for one thing in all commands: the generated table, and known twins."""

from tools import names_table


def test_the_table_of_names_is_that_of_the_commands():
    """`python -m tools.names_table` writes it."""
    written = names_table.PAGE.read_text(encoding="utf-8")
    assert written == names_table.page(), "run `python -m tools.names_table`"


def test_the_number_of_items_of_a_subset_has_one_name():
    every = names_table.options()
    assert {"run", "shrink"} <= every["--size"].keys()
    assert not {"run", "shrink"} & every["--items"].keys()
