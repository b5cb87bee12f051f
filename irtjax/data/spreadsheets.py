"""Names in CSV files that a spreadsheet would take for formulas.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line
break, and names come from logs of other people. `defuse` puts an apostrophe before such
a name, the mark of text in a spreadsheet; numbers such as ``-5`` stay. Apostrophes
before such a name get one more, so `restore` finds the very names: a reader of irtjax
takes away one apostrophe. It does so only in columns in which every such name has one,
so names of other people's files stay, and two names never become one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

#: Its functions are made when it is imported: type checkers do not find them.
pc: Any = pyarrow.compute

#: The last four are the wide forms in Japanese and Chinese text.
_FORMULA = "^'*[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"
_NUMBER = r"^'?[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def defuse(table: pa.Table) -> pa.Table:
    """Returns a table whose texts and column names are no formulas.

    >>> defuse(pa.table({"item": ["=1+1", "-5", "'@a"]}))["item"].to_pylist()
    ["'=1+1", '-5', "''@a"]
    """
    table = _by_texts(table, _defuse)
    return table.rename_columns(_defuse(_texts(table.column_names)).to_pylist())


def restore(table: pa.Table) -> pa.Table:
    """Returns a table with the names that `defuse` was given.

    >>> restore(pa.table({"item": ["'=1+1", "-5", "''@a"]}))["item"].to_pylist()
    ['=1+1', '-5', "'@a"]
    >>> restore(pa.table({"item": ["'@a", "@a"]}))["item"].to_pylist()
    ["'@a", '@a']
    """
    return _by_texts(table, _restore)


def restore_names(names: list[str]) -> list[str]:
    """Returns the column names that `defuse` was given."""
    return _restore(_texts(names)).to_pylist()


def _texts(names: list[str]) -> pa.Array:
    return pa.array(names, pa.string())


def _by_texts(table: pa.Table, change: Any) -> pa.Table:
    """Changes the columns of text."""
    columns, changed = list(table.columns), False
    for k, column in enumerate(columns):
        kind = column.type
        if pa.types.is_dictionary(kind) and is_text(kind.value_type):
            column = column.unify_dictionaries()
            if not column.num_chunks:
                continue
            words = change(column.chunk(0).dictionary)
            chunks = [
                pa.DictionaryArray.from_arrays(part.indices, words)
                for part in column.chunks
            ]
            column = pa.chunked_array(chunks, kind)
        elif is_text(kind):
            column = change(column)
        else:
            continue
        columns[k], changed = column, True
    # One table of all: a new one for each column takes a minute for 30,000.
    return pa.Table.from_arrays(columns, schema=table.schema) if changed else table


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of a type are text, not coded."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _formulas(texts: Any) -> Any:
    """Whether each text is a formula, but for apostrophes; a number is none."""
    formula = pc.match_substring_regex(texts, _FORMULA)
    if not pc.any(formula).as_py():
        return formula
    number = pc.match_substring_regex(texts, _NUMBER)
    # An apostrophe and a number is no result of `defuse`, and gets one more itself.
    bare = pc.and_(number, pc.invert(pc.starts_with(texts, "'")))
    return pc.and_(formula, pc.invert(bare))


def _defuse(texts: Any) -> Any:
    """Texts with an apostrophe before those that a spreadsheet would compute."""
    formula = _formulas(texts)
    if not pc.any(formula).as_py():
        return texts
    mark, separator = pa.scalar("'", texts.type), pa.scalar("", texts.type)
    marked = pc.binary_join_element_wise(mark, texts, separator)
    return pc.if_else(formula, marked, texts)


def _restore(texts: Any) -> Any:
    """Texts as they were before `_defuse`, if all formulas have the apostrophe."""
    formula = _formulas(texts)
    if not pc.any(formula).as_py():
        return texts
    marked = pc.and_(
        pc.starts_with(texts, "'"), pc.invert(pc.match_substring_regex(texts, _NUMBER))
    )
    if not pc.all(pc.or_(marked, pc.invert(formula))).as_py():
        return texts
    return pc.if_else(formula, pc.utf8_slice_codeunits(texts, 1), texts)
