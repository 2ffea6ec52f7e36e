"""Values and programs at random: values of every type, programs of every builtin and form."""

# ruff: noqa: E501  # programs and tables of them stand on one line each

from hypothesis import strategies as st

from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.values import Keyword, LispSet, as_key

WORDS = st.text("abcdefghijklmnopqrstuvwxyz-?!_0123456789", min_size=1, max_size=6)
KEYWORDS = st.builds(Keyword, WORDS)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-3, 10),
    st.sampled_from([2**61 - 1, 2**64, -(2**61), 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8), KEYWORDS)


def _collections(items: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(items, max_size=4),
        st.dictionaries(items.map(as_key), items, max_size=4),
        st.lists(items, max_size=4).map(LispSet.of),
    )


VALUES = st.recursive(SCALARS, _collections, max_leaves=12)
"""Any value that can be written down: no functions, no NaN."""

_WRITTEN = (
    "nil", "true", "false", "0", "1", "2", "-1", "3.5", "0.0", '""', '"a"', '"a,b"', '"42"', '"e\u0301"', ":a", ":b", "x", "y", "f",
    "[]", "[1]", "[1 2 3]", "[nil]", '["b" "a"]', "[[1 2] [3 4]]", "{}", "{:a 1}", '{"a" 1}', "{:a {:b 2}}", "#{}", "#{1 :a}",
    "[{:a 1 :b 2} {:a nil}]", '[{:a 1 :b "x"} {:b 2}]', "1000000000000000000000", "2305843009213693951", "1.0e300",
    "ctx/rows", "ctx/none", "memory/k", "inc", "+", ">", "identity", "count", "(fn [x] x)", "(fn [x y] y)",
)  # fmt: skip
_LITERALS = st.one_of(
    st.sampled_from(_WRITTEN),
    st.sampled_from(_WRITTEN),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:.6f}"),
)
_NAMES = st.sampled_from(sorted(BUILTINS))
_SLOT = "•"
_FORMS = (
    "(if • • •)", "(if • •)", "(when • •)", "(let [x •] •)", "(let [[x & y] •] •)", "(let [{:keys [x y] :or {x •} :as m} •] •)",
    "(let [x • y •] •)", "(do • •)", "(and • •)", "(or • •)", "(cond • • :else •)", "(-> • • •)", "(->> • • •)", "(fn [x] •)",
    "(fn [x & y] •)", "#(• % •)", "((fn [x] •) •)", "(map (fn [x] •) •)", "(filter (fn [x] •) •)", "(reduce (fn [x y] •) • •)",
    "(sort-by (fn [x] •) •)", "(sort (fn [x y] •) •)", "(loop [x •] (if • x (recur •)))", "(loop [x • y 5] (if (zero? y) x (recur • (dec y))))",
    "(if-let [x •] • •)", "(when-let [x •] •)", "(case • 1 • :a • •)", "(where :a = •)", "(where [:a :b] • •)", "(where :a)",
    "(filter (where :a > •) •)", "(all-of • •)", "(any-of • •)", "(memory/put :k •)", "(memory/get :k)", '(call "t" {:a •})', '(call "t" •)',
    "(return •)", "(fail •)", "(do (def x •) •)", "(do (defn f [x] •) (f •))", "(for [x • y •] •)", "(doseq [x •] •)", "(• • •)", "(• •)",
    "[• •]", "{:a • :b •}", "{• •}", "#{•}", "(some-> • •)", "(cond-> • • •)", "(as-> • x •)", "(comp • •)", "(partial • •)", "(juxt • •)", "(apply • •)",
    "(group-by (fn [x] •) •)", "(update • • (fn [x] •))", "(str • •)", "(= • •)", "(< • •)", "(+ • •)", "(* • •)",
)  # fmt: skip


def _forms(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    @st.composite
    def form(draw: st.DrawFn) -> str:
        shape = draw(st.one_of(st.sampled_from(_FORMS), _calls()))
        first, *rest = shape.split(_SLOT)
        return first + "".join(draw(parts) + piece for piece in rest)

    return form()


@st.composite
def _calls(draw: st.DrawFn) -> str:
    name = draw(_NAMES)
    builtin = BUILTINS[name]
    most = builtin.least + 2 if builtin.most is None else builtin.most
    count = draw(st.integers(max(0, builtin.least - (draw(st.integers(0, 9)) == 0)), most))
    return f"({' '.join([name, *[_SLOT] * count])})"


PROGRAMS = st.recursive(st.one_of(_LITERALS, _LITERALS, _NAMES), _forms, max_leaves=14)
"""Programs that can be read; most of them make little sense."""

PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *"()[]{}#\"'%,;:\\ \n",
                "#(",
                "#{",
                '"',
                "nil",
                "1",
                "-1",
                "1.5",
                ":a",
                "x",
                "let",
                "fn",
                "if",
                "[x 1]",
                "&",
            ]
        ),
        st.text(max_size=3),
        _NAMES,
    ),
    max_size=25,
).map(" ".join)
"""Text that is hardly ever a program."""
