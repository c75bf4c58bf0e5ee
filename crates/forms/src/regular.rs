//! Regular expressions as find and getfattr take them. The dialects of POSIX and GNU are translated to the
//! syntax of the crate `regex`.
//!
//! Callers test only whether a text matches, not where, so POSIX's longest-match rule is not needed.
//! Back-references (`\1`) are refused.

use regex::bytes::{Regex, RegexBuilder};

/// Maximum memory of a compiled pattern.
const MAX_BYTES: usize = 8 << 20;

/// Matches a character, or a byte that is not part of valid UTF-8.
const ANY: &str = r"(?:.|(?-u:[\x80-\xff]))";

/// The dialect of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// find's own: `\(a\|b\)`, `+` and `?` without a backslash, no intervals.
    Emacs,
    /// POSIX basic, with GNU's extensions: `\(a\|b\)`, `\+`, `\?`, `\{2\}`.
    Basic,
    /// POSIX extended: `(a|b)`, `+`, `?`, `{2}`.
    Extended,
}

impl Dialect {
    /// The dialect for a name of `find -regextype`.
    pub fn named(name: &str) -> Option<Dialect> {
        Some(match name {
            "findutils-default" | "emacs" => Dialect::Emacs,
            "posix-basic" | "posix-minimal-basic" | "ed" | "sed" | "grep" => Dialect::Basic,
            "posix-extended" | "posix-egrep" | "egrep" | "awk" | "gnu-awk" | "posix-awk" => {
                Dialect::Extended
            }
            _ => return None,
        })
    }

    /// The operator that a character stands for, with or without a backslash before it; `None` if it is
    /// literal.
    fn operator(self, character: char, escaped: bool) -> Option<char> {
        let is = match (self, character) {
            (Dialect::Emacs, '(' | ')' | '|') => escaped,
            (Dialect::Emacs, '+' | '?') => !escaped,
            (Dialect::Emacs, '{' | '}') => false,
            (Dialect::Basic, '(' | ')' | '|' | '+' | '?' | '{' | '}') => escaped,
            (Dialect::Extended, '(' | ')' | '|' | '+' | '?' | '{' | '}') => !escaped,
            _ => false,
        };
        is.then_some(character)
    }
}

/// Compiles a pattern. With `whole`, it must match the whole text.
pub fn compile(
    pattern: &str,
    dialect: Dialect,
    whole: bool,
    case_sensitive: bool,
) -> Result<Regex, String> {
    let translated = translate(pattern, dialect)?;
    let translated = match whole {
        true => format!(r"\A(?:{translated})\z"),
        false => translated,
    };
    RegexBuilder::new(&translated)
        .case_insensitive(!case_sensitive)
        .dot_matches_new_line(true)
        .size_limit(MAX_BYTES)
        .build()
        .map_err(|error| format!("'{pattern}' is not a regular expression: {error}"))
}

fn translate(pattern: &str, dialect: Dialect) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = pattern.chars();
    // At the start there is nothing to repeat, so a '*' is literal.
    let mut at_start = true;
    while let Some(first) = rest.next() {
        let (character, escaped) = match first {
            '\\' => match rest.next() {
                Some(next) => (next, true),
                None => return Err(format!("'{pattern}' ends with a backslash")),
            },
            other => (other, false),
        };
        if let Some(operator) = dialect.operator(character, escaped) {
            let repeats = matches!(operator, '+' | '?' | '{');
            match repeats && at_start {
                true => out.push_str(&regex::escape(&operator.to_string())),
                false => out.push(operator),
            }
            at_start = matches!(operator, '(' | '|');
            continue;
        }
        let starts = at_start;
        at_start = false;
        match (character, escaped) {
            ('[', false) => bracket(&mut rest, &mut out)
                .ok_or_else(|| format!("'{pattern}': '[' without ']'"))?,
            ('*', false) if !starts => out.push('*'),
            ('.', false) => out.push_str(ANY),
            ('^', false) if starts || dialect == Dialect::Extended => {
                out.push('^');
                at_start = true;
            }
            ('$', false) if dialect == Dialect::Extended || is_end(rest.as_str(), dialect) => {
                out.push('$');
            }
            ('w' | 'W' | 's' | 'S' | 'b' | 'B', true) => out.extend(['\\', character]),
            ('<', true) => out.push_str(r"\b{start}"),
            ('>', true) => out.push_str(r"\b{end}"),
            ('`', true) => out.push_str(r"\A"),
            ('\'', true) => out.push_str(r"\z"),
            ('1'..='9', true) => {
                return Err(format!("'{pattern}': \\{character} is not supported"));
            }
            _ => out.push_str(&regex::escape(&character.to_string())),
        }
    }
    Ok(out)
}

/// Whether the pattern, a group or an alternative ends here.
fn is_end(rest: &str, dialect: Dialect) -> bool {
    let (next, escaped) = match rest.strip_prefix('\\') {
        Some(rest) => (rest.chars().next(), true),
        None => (rest.chars().next(), false),
    };
    next.is_none_or(|next| matches!(dialect.operator(next, escaped), Some(')' | '|')))
}

/// Translates a bracket expression, after its `[`. In it, backslashes and the set operators of `regex` are
/// literal.
fn bracket(rest: &mut std::str::Chars<'_>, out: &mut String) -> Option<()> {
    out.push('[');
    if rest.as_str().starts_with('^') {
        rest.next();
        out.push('^');
    }
    let mut is_first = true;
    loop {
        let character = rest.next()?;
        match character {
            ']' if !is_first => break,
            '[' if rest.as_str().starts_with(':') => {
                let end = rest.as_str().find(":]")?;
                let (class, behind) = rest.as_str().split_at(end.checked_add(2)?);
                out.push('[');
                out.push_str(class);
                *rest = behind.chars();
            }
            // A hyphen within a range is an operator.
            '-' => match is_first || rest.as_str().starts_with(']') {
                true => out.push_str(r"\-"),
                false => out.push('-'),
            },
            other => out.push_str(&regex::escape(&other.to_string())),
        }
        is_first = false;
    }
    out.push(']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_differ_in_their_backslashes() {
        use Dialect::{Basic, Emacs, Extended};
        for (dialect, pattern, fits, not) in [
            (Emacs, r".*\.\(c\|h\)", "a/b.c", "a/b.x"),
            (Emacs, "a+b?", "aab", "a+b"),
            (Emacs, "a{2}", "a{2}", "aa"),
            (Basic, r"a\{2\}b\+", "aabb", "ab"),
            (Basic, "a+(b)", "a+(b)", "aab"),
            (Basic, "*a*", "*aaa", "a*b"),
            (Extended, "(ab){2}|x$", "abab", "ab"),
            (Extended, r"a\(b\)", "a(b)", "ab"),
            (Extended, r"[[:digit:]]+[\]", r"12\", "12"),
            (Extended, "[]a-c^&~-]+", "]b^&~-", "d"),
            (Extended, "[^a-c]", "d", "b"),
            (Extended, r"\w+\.[[:alpha:]]{3}", "one.txt", "one.t1t"),
        ] {
            let regex = compile(pattern, dialect, true, true).unwrap();
            assert!(regex.is_match(fits.as_bytes()), "{pattern} {fits}");
            assert!(!regex.is_match(not.as_bytes()), "{pattern} {not}");
        }
        let part = compile("^user\\.", Extended, false, true).unwrap();
        assert!(part.is_match(b"user.a") && !part.is_match(b"trusted.user."));
        let any = compile("ABC", Emacs, true, false).unwrap();
        assert!(any.is_match(b"aBc"));
        assert!(
            compile("a.b", Emacs, true, true)
                .unwrap()
                .is_match(b"a\xffb")
        );
        for bad in ["[a", r"a\", r"\(a\)\1", r"\(a"] {
            assert!(compile(bad, Emacs, true, true).is_err(), "{bad}");
        }
    }
}
