"""One name for one thing in all commands: the generated table, and known twins."""

from tools import names_table


def test_the_table_of_names_is_that_of_the_commands():
    """`python -m tools.names_table` writes it."""
    written = names_table.PAGE.read_text(encoding="utf-8")
    assert written == names_table.page(), "run `python -m tools.names_table`"


def test_one_name_is_one_thing():
    every = names_table.options()
    assert {"run", "shrink"} <= every["--size"].keys()
    # Numbers, as Python has them; a table of items; names; lists of numbers.
    assert (
        {*every["--num-items"]} == {*every["--num-subjects"]} == {"adapt", "simulate"}
    )
    # A table, as --subject-table is.
    assert {*every["--items"]} == {"show"}
    assert {*every["--subjects"]} == {"correlates", "dif"}
    assert {*every["--item-names"]} == {"network", "predict"}
    assert {*every["--subject-names"]} == {"predict"}
    assert {*every["--scoring"]} == {"adapt", "score"}
    assert {"power", "reliability", "shrink"} == {*every["--sizes"]}
    # A facet of items; a rule that chooses them; what a ranking may depend on.
    assert {*every["--by"]} == {"clusters", "rasch"}
    assert {*every["--rule"]} == {"shrink"} and {*every["--kind"]} == {"stability"}
    # Responses are arguments.
    assert "--data" not in every
