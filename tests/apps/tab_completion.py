#!/usr/bin/env python3
"""Presses Tab in an interactive shell: what the line is afterwards.

usage: tab_completion.py bash|zsh|fish FOLDER LINE...

FOLDER has the scripts of completion. Types each LINE and Tab into one shell on a pseudo-terminal, and
prints the line that the shell then has, followed by `|`, so that spaces at its end are seen. Shells read
keys one after the other: the key that reports the line comes after all that Tab has done.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time

REPORT_KEY = b"\x14"  # Ctrl-T
SECONDS_MAX = 60  # until a shell has answered a line

BASH = r"""
PS1='$ '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
. "$TAB_SCRIPTS/remora.bash"
tab_report() {
  printf '%s|\n' "$READLINE_LINE" >>"$TAB_REPORT"
  READLINE_LINE='' READLINE_POINT=0
}
bind -x '"\C-t": tab_report'
"""
ZSH = r"""
PS1='$ '
unsetopt beep
fpath=("$TAB_SCRIPTS" $fpath)
autoload -Uz compinit
compinit -u -D
tab_report() {
  print -r -- "$BUFFER|" >>"$TAB_REPORT"
  BUFFER=''
}
zle -N tab_report
bindkey '^T' tab_report
"""
FISH = r"""
function fish_prompt; printf '$ '; end
for script in $TAB_SCRIPTS/*.fish; source $script; end
function tab_report
    printf '%s|\n' (commandline) >>$TAB_REPORT
    commandline -r ''
end
bind \ct tab_report
"""


def command(shell: str, home: str) -> list[str]:
    """The shell, reading nothing of the user's but a file in `home`."""
    file, text = {"bash": ("rc", BASH), "zsh": (".zshrc", ZSH), "fish": ("rc", FISH)}[shell]
    path = os.path.join(home, file)
    with open(path, "w", encoding="utf-8") as rc:
        rc.write(text)
    if shell == "bash":
        return ["bash", "--noprofile", "--rcfile", path, "-i"]
    if shell == "zsh":
        return ["zsh", "-d", "-i"]  # reads $ZDOTDIR/.zshrc
    return ["fish", "--no-config", "--private", "-i", "-C", f"source {path}"]


class Shell:
    """An interactive shell on a pseudo-terminal."""

    def __init__(self, shell: str, scripts: str, home: str) -> None:
        self.report = os.path.join(home, "report")
        with open(self.report, "w", encoding="utf-8"):
            pass
        environment = dict(
            os.environ, HOME=home, ZDOTDIR=home, XDG_CONFIG_HOME=home, XDG_DATA_HOME=home,
            TERM="vt100", TAB_SCRIPTS=scripts, TAB_REPORT=self.report)
        environment.pop("INPUTRC", None)
        arguments = command(shell, home)
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(arguments[0], arguments, environment)
            finally:
                os._exit(127)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 300, 0, 0))
        self.screen = b""
        self.deadline = 0.0

    def lines(self) -> list[str]:
        """The lines that it has reported."""
        with open(self.report, encoding="utf-8") as report:
            return report.read().splitlines()

    def press(self, keys: bytes) -> None:
        self.deadline = time.monotonic() + SECONDS_MAX
        os.write(self.terminal, keys)

    def pump(self) -> None:
        """Takes what the shell writes, so that it can go on."""
        if time.monotonic() > self.deadline:
            raise TimeoutError
        if select.select([self.terminal], [], [], 0.05)[0]:
            self.screen += os.read(self.terminal, 65536)

    def start(self) -> None:
        """Until it takes keys: it may drop those before its first prompt."""
        for _ in range(SECONDS_MAX):
            self.press(REPORT_KEY)
            for _ in range(20):
                self.pump()
                if self.lines():
                    break
            if self.lines():
                break
        self.press(b"ready" + REPORT_KEY)
        while "ready|" not in self.lines():
            self.pump()

    def complete(self, line: str) -> str:
        seen = len(self.lines())
        self.press(line.encode() + b"\t" + REPORT_KEY)
        while len(self.lines()) == seen:
            self.pump()
        return self.lines()[-1]

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def main() -> int:
    name, scripts, lines = sys.argv[1], sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory() as home:
        shell = Shell(name, scripts, home)
        try:
            shell.start()
            for line in lines:
                print(shell.complete(line))
        except (TimeoutError, OSError) as error:
            written = shell.screen.decode(errors="replace")
            sys.stderr.write(f"{name} did not answer ({error!r}); it wrote:\n{written}\n")
            return 1
        finally:
            shell.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
