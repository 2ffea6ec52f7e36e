"""Text as models write it, cut into pieces of the size of tokens."""

from __future__ import annotations

import functools

_PAGE = """\
## Where the time goes

The parser reads **every** line twice: once to find the `fence`, once to find its end. That is *linear*, yet each
line costs a regular expression — and those are compiled again — so a file of 10 000 lines takes 1.4 s.

1. Compile the expression once, at import.
2. Keep the position of the last fence; a naïve search starts at the top.
   - The position is a marker, so edits above it do no harm.
   - See [the manual](https://example.org/markers) for what moves it.

```python
def fences(lines: list[str]) -> Iterator[tuple[int, int]]:
    start = None
    for number, line in enumerate(lines):
        if line.startswith("```"):
            start, found = (number, None) if start is None else (None, start)
```

> It was fast enough until the files grew. Then it was not: α ≈ 0.98, β ≪ 1.

| size | before | after |
|-----:|-------:|------:|
|  1 k |   14 ms|   2 ms|

"""
_SIZE = 6  # characters


@functools.cache
def pieces(count: int) -> tuple[str, ...]:
    """Return ``count`` pieces of text."""
    text = _PAGE * (count * _SIZE // len(_PAGE) + 1)
    return tuple(text[start : start + _SIZE] for start in range(0, count * _SIZE, _SIZE))


def text(count: int) -> str:
    """Return what ``count`` pieces say."""
    return "".join(pieces(count))
