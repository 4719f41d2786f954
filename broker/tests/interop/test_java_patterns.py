"""Regular expressions: Java itself and our translation find the same topics, or both refuse the pattern."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.client.java_regex.java_pattern import compile_pattern
from odradek_testkit.interop.apache import compile_java, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(300)]

NAMES = """
a b log my-log-1 LOG Log.x orders.v2 a_b __x - .. a1b2 AAB aab abab 0 x9 logs-2024.01 FOO-bar_baz.7 aaa aaaa k zZ e.f
""".split()
HAND_MADE = r"""
log ^log$ \Alog\z log\Z (?i)log a(?i)b|c (?i:lo)g a++b (?>a+)ab a*+a \p{Alpha}+ ^\p{L}+$ ^\pL+$ \P{L}
^\p{Lu}+$ ^\p{IsAlphabetic}+$ ^\p{javaLowerCase}+$ \p{Punct} ^\p{Alnum}+$ \Q.\E \Qa.b\E|\Q.. [\Q-.\E]
(?<first>[a-z])\k<first> (?<a1>a)(b)\1\2 (a)(b)\2 \h [a-c&&[^b]] ^[a-z&&[^aeiou]]+$ [^a-z] [^a-z&&[a-c]]
[a-z&&b-k&&[^c]] []a] [a]] [a-] [-a] [a[b-c]d] [\w&&[^\d]] [\w-] [a-\d] \x41 \u0041 \x{41} \0101 \cA \e
(?x)[l]o#comment (?-i)log (?i)l(?-i)og (?s). (?m)^log$ (?d)log$ (?u)log (?U)\w log{1} a{2} a{2,} a{2,3}?
a{2,3}+ a{,3} a{ { a{3,2} ** a** a?+ a+?b (a|b)*c (?=l)log (?!l)o (?<=l)o (?<!l)o ( ) a) [ [] [^] \ \y \j \R
\X \bb \Blog \Gl () ()*a |a a| (?) (?i) (?q)a (?<1a>x) (?<a>x)(?<a>y) \k<zz> (a)\11 \p{IsLatin}+
\p{script=Latin} \p{InBasicLatin} \p{gc=Lu} \p{general_category=Nd} \p{IsDigit} \p{LC} \p{L1}
\p{javaWhitespace} \p{Foo} \p{Is_Foo} \p \p{ \pX (?i)[a-c]+$ (?i)[^a-c] (?i)\p{Lower}+ (?i)[A-Z&&[^B]]
(?i)[^A-Z&&[^B]] (?i)\P{Lu} ^(?:a|b)++$ (?i)(a)\1 [a&b] [^^] [a^] .* ^.{3}$ \. \- \_ \/ a\ ^$ $^ x* ^x*$
^[\p{Alpha}&&[^\p{Upper}]]+$ [\h\w] [\p{L}-\d] [a-z-9] [+--] [\x2d] a#b \ba\b (a)|b\1 ^(a)?b\1$ [[a-c]&&[b-d]]
[a-c[d]&&[b-d]] [^[a-c]] [^a[b]] [^[a]b] [a-c&&b-d[z]]
""".split()
LEAVES = r"""
a b l o g . \. \d \w \W [a-f] [^a-f] \p{L} \P{Lu} - _ \p{Punct} [a-z&&[^l-o]] ^ $ \b [^abc] [\w&&[^a]] [[a-c]d]
""".split()
QUANTIFIERS = "* + ? {2} {1,2} *+ ?+ ++ *? +?".split()

PROGRAM = """
import java.nio.file.*;
import java.util.regex.*;

public class Patterns {
    public static void main(String[] files) throws Exception {
        for (String text : Files.readAllLines(Path.of(files[0]))) {
            StringBuilder line = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(text);
                for (String name : Files.readAllLines(Path.of(files[1])))
                    line.append(pattern.matcher(name).find() ? '1' : '0');
            } catch (PatternSyntaxException error) {
                line.append("refused");
            }
            System.out.println(line);
        }
    }
}
"""


def random_pattern(source: random.Random, depth: int = 0) -> str:
    """Return a valid pattern of a few elements."""

    def inner() -> str:
        return random_pattern(source, depth + 1)

    forms = [
        lambda: source.choice(LEAVES),
        lambda: inner() + inner(),
        lambda: f"({inner()})",
        lambda: f"(?:{inner()}|{inner()})",
        lambda: f"(?:{inner()}){source.choice(QUANTIFIERS)}",
        lambda: f"(?{source.choice(['i', '-i'])}){inner()}",
        lambda: f"(?{source.choice(['=', '!', '>', 'i:', '-i:'])}{inner()})",
        lambda: f"{inner()}|{inner()}",
    ]
    return (forms[0] if depth > 3 else source.choice(forms))()


def found_here(pattern: str) -> str:
    try:
        compiled = compile_pattern("subscribePattern", pattern)
    except ConfigError:
        return "refused"
    return "".join("1" if compiled.search(name) else "0" for name in NAMES)


def test_java_finds_the_same_topics(tmp_path: Path) -> None:
    source = random.Random(20)
    patterns = [*HAND_MADE, *(random_pattern(source) for _ in range(3000))]
    for name, lines in (("patterns", patterns), ("names", NAMES)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    program = tmp_path / "Patterns.java"
    program.write_text(PROGRAM)
    compile_java(tmp_path, [program], tmp_path)
    output = run_tool(tmp_path, "Patterns", [str(tmp_path / "patterns"), str(tmp_path / "names")], classes=tmp_path)
    found = [(pattern, java, found_here(pattern)) for pattern, java in zip(patterns, output.splitlines(), strict=True)]
    assert [each for each in found if each[1] != each[2]] == []
