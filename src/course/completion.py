"""What a shell completes after `course`: three small scripts.

They are made from the parser itself, so they know every command and
option; exercises and chapters are written into them.
"""

from course import exercises

BASH = """\
_course() {{
    local words="{commands}" cur="${{COMP_WORDS[COMP_CWORD]}}"
    if [ "$COMP_CWORD" -gt 1 ]; then
        case "${{COMP_WORDS[1]}}" in
{cases}
        *) words="" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _course course
"""

ZSH = """\
_course() {{
    local -a choices=({commands})
    if (( CURRENT > 2 )); then
        case "$words[2]" in
{cases}
        *) choices=() ;;
        esac
    fi
    compadd -a choices || _files
}}
compdef _course course
"""


def candidates(parser):
    """{command: (help, [word])}: its options, and what it takes."""
    idents = [e.id for e in exercises.load()]
    chapters = sorted({i[:2] for i in idents})
    takes = {"check": idents + chapters, "hint": idents, "solution": idents,
             "take": chapters, "reset": chapters, "run": chapters}
    chosen = next(a for a in parser._actions if a.dest == "command")
    short = {a.dest: a.help for a in chosen._choices_actions}
    found = {}
    for name, made in chosen.choices.items():
        options = [o for a in made._actions for o in a.option_strings
                   if o.startswith("--")]
        values = [c for a in made._actions for c in a.choices or ()]
        found[name] = (short[name], options + values + takes.get(name, []))
    return found


def script(shell, parser):
    found = candidates(parser)
    if shell == "fish":
        first = "not __fish_seen_subcommand_from " + " ".join(found)
        lines = ["complete -c course -f"]
        for name, (short, words) in found.items():
            lines.append(f"complete -c course -n '{first}' -a {name} "
                         f"-d '{short}'")
            lines.append("complete -c course -n '__fish_seen_subcommand_from "
                         f"{name}' -a '{' '.join(words)}'")
        return "\n".join(lines) + "\n"
    text, line = ((BASH, 'words="{}"') if shell == "bash"
                  else (ZSH, "choices=({})"))
    cases = "\n".join(
        f"        {name}) {line.format(' '.join(words))} ;;"
        for name, (_, words) in found.items())
    return text.format(commands=" ".join(found), cases=cases)
