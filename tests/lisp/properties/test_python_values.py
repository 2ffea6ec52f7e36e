"""Values become Python's and back without being written out: what is shared stays shared."""

from hypothesis import given
from hypothesis import strategies as st

from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import equal, from_python, to_python
from tests.lisp.properties.strategies import VALUES

PYTHON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda items: st.lists(items, max_size=4) | st.dictionaries(st.text(), items, max_size=4),
    max_leaves=12,
)


@given(PYTHON)
def test_data_comes_back_from_a_program_as_it_went_in(data):
    assert to_python(from_python(data)) == data


@given(VALUES)
def test_what_python_gets_of_a_value_is_a_value(value):
    once = from_python(to_python(value))
    assert equal(from_python(to_python(once)), once, Budget())


@given(st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=6))
def test_members_of_a_set_are_told_apart(vectors):
    assert sorted(to_python(from_python(frozenset(map(tuple, vectors))))) == sorted(
        map(list, set(map(tuple, vectors)))
    )


def test_a_tower_stays_small():
    tower: list[object] = [1]
    for _ in range(100):
        tower = [tower, tower]
    value = from_python(tower)
    assert value[0] is value[1]
    plain = to_python(value)
    assert plain[0] is plain[1]
