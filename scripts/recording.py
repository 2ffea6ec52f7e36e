"""The recording at the top of README: what a user does in Emacs on a terminal, as an animated SVG.

Run by ``scripts/screenshots.sh recording`` as ``python scripts/recording.py FILE``, in a project and with the
environment of the pictures. Keys are typed into a shell in tmux; what it shows is written down ten times a second,
and pauses while something loads are shortened. The SVG needs neither script nor player: a strip of screens, each
line drawn once, that a style moves.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(__file__).resolve().parent
COLUMNS, ROWS = 92, 26
FONT, LINE, CHARACTER, PAD = 14, 18, 8.4, 14  # pixels
FONTS = "ui-monospace,SFMono-Regular,Menlo,DejaVu Sans Mono,monospace"
LONGEST_S = 1.2  # that a screen stays, unless the film pauses
WHOLE_S = 40  # that the film takes; played faster if it were longer
BACKGROUND, FOREGROUND = "#101216", "#e4e6ea"
_BASIC = ["101216", "e0554f", "4fb87a", "d9b74a", "5c9df0", "c583d6", "46b3c4", "d0d3d8"]
_BRIGHT = ["6b717b", "ff7b72", "6fd396", "ecd06f", "82b5ff", "d9a3e6", "6fd0df", "ffffff"]


class Screen(NamedTuple):
    """What was seen, from when on, and how long it may be shown."""

    at: float
    lines: tuple[str, ...]  # with the colours of a terminal
    cursor: tuple[int, int]  # column, line
    most: float


class Film:
    """A shell in tmux, and what it showed."""

    def __init__(self, socket: Path) -> None:
        self.screens: list[Screen] = []
        self._socket = socket
        self._most = LONGEST_S
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        shell = ["env", "PS1=$ ", "bash", "--norc", "--noprofile", "--noediting"]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "e", *size, shlex.join(shell))
        self._tmux("set", "-g", "status", "off")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-u", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def look(self) -> str:
        """Write down what is shown, if it is something else than before; return its text."""
        text = self._tmux("capture-pane", "-e", "-p", "-t", "e", ";", "display", "-p", "#{cursor_x} #{cursor_y}")
        *lines, cursor = text.rstrip("\n").split("\n")
        x, y = map(int, cursor.split())
        lines = [line.rstrip() for line in lines][:ROWS]
        screen = Screen(time.monotonic(), tuple(lines), (x, y), self._most)
        if not self.screens or screen[1:3] != self.screens[-1][1:3]:
            self.screens.append(screen)
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))

    def wait(self, seconds: float, *, shown: bool = False) -> None:
        """Go on looking for a while; ``shown`` keeps the whole pause."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.1)
        if shown:
            self.screens[-1] = self.screens[-1]._replace(most=max(seconds, LONGEST_S))

    def until(self, text: str, seconds: float = 60) -> None:
        """Look until ``text`` is shown."""
        end = time.monotonic() + seconds
        while text not in self.look():
            if time.monotonic() > end:
                sys.exit(f"recording: {text!r} was not shown, but:\n{self.look()}")
            time.sleep(0.1)

    def type(self, text: str) -> None:
        """Type as people do."""
        for character in text:
            self._tmux("send-keys", "-l", "-t", "e", "--", character)
            self.wait(0.05)

    def key(self, *names: str) -> None:
        """Press keys, as Emacs names them."""
        for name in names:
            self._tmux("send-keys", "-t", "e", {"RET": "Enter"}.get(name, name))
            self.wait(0.2)

    def close(self) -> None:
        """End the shell."""
        self._tmux("kill-server")


def play(film: Film) -> None:
    """Do what README says one can."""
    setup = f"-q -l {SCRIPTS}/screenshots.el -f screenshots-frame"
    film._tmux(
        "send-keys",
        "-t",
        "e",
        f"emacs() {{ command emacs -nw {setup} 2>/dev/null || {{ clear; echo Killed; }}; }} 2>/dev/null; clear",
        "Enter",
    )
    film.wait(0.8)
    film.screens.clear()
    film.type("emacs")
    film.key("RET")
    film.until("scratch")
    film.wait(1)
    film.key("M-x")
    film.type("pyagentd-session")
    film.key("RET")
    film.until("Session name")
    film.type("Discounts")
    film.key("RET")
    film.until("Ready")
    film.type("`make test` fails. What is wrong?")
    film.key("C-c", "RET")
    film.until("Allow")
    film.wait(1.5, shown=True)
    film.key("C-c", "C-c")
    film.key("y")
    film.until("wrong result")
    film.until("Ready")
    film.wait(1.2, shown=True)
    film.type("Have an explorer check the callers.")
    film.key("C-c", "RET")
    film.until("Allow")
    film.wait(1.2, shown=True)
    film.key("C-c", "C-c")
    film.key("y")
    film.until("Calling Tools")
    film.wait(0.6)
    subprocess.run(["pkill", "-KILL", "-x", "-t", _terminal(film), "emacs|emacs-nox|emacs-gtk"], check=False)
    film.until("Killed")
    film.wait(0.5)
    film.type("# Emacs is gone. The agent goes on.")
    film.key("RET")
    film.wait(2.5, shown=True)
    film.type("emacs")
    film.key("RET")
    film.until("scratch")
    film.key("M-x")
    film.type("pyagentd-sessions")
    film.key("RET")
    film.until("explorer")
    film.wait(1.5, shown=True)
    film.key("RET")
    film.until("change together")
    film.key("M->")
    film.wait(2, shown=True)
    film.type("Mend both, and run the tests again.")
    film.key("C-c", "RET")
    film.until("prices.py?")
    film.wait(2, shown=True)
    film.key("C-c", "C-c")
    film.key("y")
    film.until("invoices.py?")
    film.key("C-c", "C-c")
    film.key("y")
    film.until("make test")
    film.wait(1)
    if "Allow" in film.look():
        film.key("C-c", "C-c")
        film.key("y")
    film.until("all tests pass")
    film.wait(3, shown=True)


def _terminal(film: Film) -> str:
    return film._tmux("display", "-p", "-t", "e", "#{pane_tty}").strip().removeprefix("/dev/")


# The SVG.


def _colour(number: int) -> str:
    if number < 16:
        return f"#{(_BASIC + _BRIGHT)[number]}"
    if number > 231:
        return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
    levels = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#" + "".join(f"{levels[each]:02x}" for each in (number // 36, number // 6 % 6, number % 6))


def _pieces(line: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the text of a line with its look: fg, bg, bold, italic, underline, inverse."""
    look: dict[str, str] = {}
    for codes, text in re.findall(r"(?:\x1b\[([0-9;]*)m)?([^\x1b\x0e\x0f]*)[\x0e\x0f]*", line):
        numbers = [int(each or 0) for each in codes.split(";")] if codes is not None and codes != "" else []
        while numbers:
            match numbers.pop(0):
                case 0:
                    look = {}
                case 1 | 3 | 4 | 7 as number:
                    look = look | {{1: "bold", 3: "italic", 4: "underline", 7: "inverse"}[number]: "1"}
                case 22 | 23 | 24 | 27 as number:
                    gone = {22: "bold", 23: "italic", 24: "underline", 27: "inverse"}[number]
                    look = {key: value for key, value in look.items() if key != gone}
                case 38 | 48 as number if len(numbers) >= 2:
                    kind = numbers.pop(0)
                    red = numbers.pop(0)
                    value = _colour(red) if kind == 5 else f"#{red:02x}{numbers.pop(0):02x}{numbers.pop(0):02x}"
                    look = look | {"fg" if number == 38 else "bg": value}
                case 39 | 49 as number:
                    look = {key: value for key, value in look.items() if key != ("fg" if number == 39 else "bg")}
                case number if 30 <= number <= 37 or 90 <= number <= 97:
                    look = look | {"fg": _colour(number - 30 if number < 40 else number - 82)}
                case number if 40 <= number <= 47 or 100 <= number <= 107:
                    look = look | {"bg": _colour(number - 40 if number < 50 else number - 92)}
        if text:
            yield text, look


def _line(line: str) -> str:
    """Return one line as SVG."""
    drawn, column = [], 0
    for text, look in _pieces(line):
        front, back = look.get("fg", FOREGROUND), look.get("bg", "")
        if "inverse" in look:
            front, back = back or BACKGROUND, front
        x, width = column * CHARACTER, len(text) * CHARACTER
        column += len(text)
        if back and back != BACKGROUND:
            drawn.append(f'<rect x="{x:.1f}" y="-13" width="{width:.1f}" height="{LINE}" fill="{back}"/>')
        if text.strip():
            more = ' font-weight="bold"' if "bold" in look else ""
            more += ' font-style="italic"' if "italic" in look else ""
            more += "" if front == FOREGROUND else f' fill="{front}"'
            drawn.append(f'<text x="{x:.1f}" textLength="{width:.1f}"{more}>{escape(text)}</text>')
        if "underline" in look:
            drawn.append(f'<rect x="{x:.1f}" y="3" width="{width:.1f}" height="1" fill="{front}"/>')
    return "".join(drawn)


def svg(screens: list[Screen]) -> str:
    """Return the film; a screen is shown until the next one, but not longer than it may."""
    ends = [after.at for after in screens[1:]] + [screens[-1].at + screens[-1].most]
    times = [min(end - screen.at, screen.most) for screen, end in zip(screens, ends, strict=True)]
    times = [seconds * min(1, WHOLE_S / sum(times)) for seconds in times]
    whole, width = sum(times), COLUMNS * CHARACTER + 2 * PAD
    known: dict[str, str] = {}
    frames, keys, now = [], [], 0.0
    for number, (screen, seconds) in enumerate(zip(screens, times, strict=True)):
        uses = []
        for y, line in enumerate(screen.lines):
            if line:
                name = known.setdefault(line, f"l{len(known)}")
                uses.append(f'<use href="#{name}" y="{y * LINE}"/>')
        x, y = screen.cursor
        cursor = f'<rect x="{x * CHARACTER:.1f}" y="{y * LINE - 13}" width="{CHARACTER}" height="{LINE}" class="c"/>'
        frames.append(f'<g transform="translate({number * width:.1f})">{"".join(uses)}{cursor}</g>')
        keys.append(f"{100 * now / whole:.3f}%{{transform:translateX({-number * width:.1f}px)}}")
        now += seconds
    height = ROWS * LINE + 2 * PAD
    style = (
        f"@keyframes film{{{''.join(keys)}}}"
        f".film{{animation:film {whole:.1f}s steps(1,end) infinite}}"
        f"text{{white-space:pre}}.c{{fill:{FOREGROUND};opacity:.55}}"
    )
    lines = "".join(f'<g id="{name}">{_line(line)}</g>' for line, name in known.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" xml:space="preserve" font-family="{FONTS}" '
        f'font-size="{FONT}" fill="{FOREGROUND}" role="img"><title>An agent that goes on when Emacs is killed</title>'
        f"<style>{style}</style><defs>{lines}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
        f'<g transform="translate({PAD},{PAD + 13})"><g class="film">{"".join(frames)}</g></g></svg>\n'
    )


def main(target: Path) -> None:
    """Play, and write the film into ``target``."""
    film = Film(Path(f"{target}.tmux"))
    try:
        play(film)
    finally:
        film.close()
    text = svg(film.screens)
    target.write_text(text, "utf-8")
    print(f"recording: {len(film.screens)} screens, {len(text) // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
