"""What tests of reading share."""

from typing import Any

import pytest

from irtjax import read


def refused(source: Any, **options: Any) -> str:
    """Returns the message of a source that is refused, which must be one line."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 (checked by the caller)
        read(source, **options)
    message = str(error.value)
    assert "\n" not in message
    return message
