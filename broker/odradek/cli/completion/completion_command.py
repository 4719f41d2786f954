"""`odradek completion`: prints the script that makes a shell complete commands, options and names."""

from __future__ import annotations

from typing import Final

import click

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_ODRADEK_COMPLETE"
"""Environment variable with which the script asks `odradek` for completions."""

# click's script for bash passes the words as bash divides them: also at colons, as in HOST:PORT. This one divides the
# line at white space. bash replaces only what follows the last colon, so completions are given without the rest.
_BASH: Final = r"""_odradek_completion() {
    local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" words word index kept reply kind value
    read -ra words <<< "$line"
    index=$((${#words[@]} - 1))
    word="${words[index]}"
    if [[ "$line" == *[[:space:]] ]]; then
        index=$((index + 1))
        word=""
    fi
    kept="${word%"${word##*[:=]}"}"
    COMPREPLY=()
    IFS=$'\n'
    for reply in $(env COMP_WORDS="$line" COMP_CWORD="$index" _ODRADEK_COMPLETE=bash_complete "$1"); do
        IFS=',' read -r kind value <<< "$reply"
        case "$kind" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$kept"}") ;;
        esac
    done
}
complete -o nosort -F _odradek_completion odradek
"""

# click's script for fish ends names and descriptions at the first comma.
_FISH: Final = """\
function _odradek_completion
    set -lx _ODRADEK_COMPLETE fish_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    for reply in (odradek)
        set -l parts (string split --max 1 "," -- $reply)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                echo $parts[2]
        end
    end
end
complete --no-files --command odradek --arguments "(_odradek_completion)"
"""
_SCRIPTS: Final = {"bash": _BASH, "fish": _FISH}


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for SHELL that completes commands, options, and names of topics, groups and profiles.

    Names come from the cluster of the options before the cursor, or of the profile. bash needs version 4.4 or later;
    `source <(odradek completion bash)` completes only in the current shell.

    \b
    Example:
      odradek completion bash > ~/.local/share/bash-completion/completions/odradek
      odradek completion zsh > ~/.zsh/completions/_odradek
      odradek completion fish > ~/.config/fish/completions/odradek.fish
    """
    from click.shell_completion import get_completion_class

    from odradek.cli.main import cli

    if shell in _SCRIPTS:
        click.echo(_SCRIPTS[shell], nl=False)
        return
    kind = get_completion_class(shell)
    assert kind is not None, "click supports all of SHELLS"
    click.echo(kind(cli, {}, "odradek", VARIABLE).source())
