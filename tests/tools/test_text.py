from hypothesis import given
from hypothesis import strategies as st

from pyagentd.errors import ToolError
from pyagentd.tools.files import decode


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_any_file_without_nul_survives_decoding_and_encoding(data: bytes) -> None:
    file = decode(data, "f")
    assert file.with_text(file.text) == data


@given(st.text().map(lambda text: text.encode("utf-16", "replace")))
def test_utf_16_survives_too(data: bytes) -> None:
    try:
        file = decode(data, "f")
    except ToolError:
        raise AssertionError("taken for binary") from None
    assert file.with_text(file.text) == data
