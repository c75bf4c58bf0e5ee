//! Parses expressions of `find`.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use crate::mode::ModeChange;
use crate::owner::Owner;
use crate::paths::pattern;
use crate::regular::{Dialect, compile};
use glob::Pattern;
use throughline::FileType;

use super::{Count, Expression, Limits, Rights, Which};
use crate::text::quote;

type Parsed<T> = Result<T, String>;

/// Maximum nesting of parentheses and negations.
const MAX_NESTED: usize = 200;

/// Returns whether the command of an `-exec` may change an image, or an error if it cannot be run.
pub type Check<'c> = &'c dyn Fn(&[OsString]) -> Parsed<bool>;

/// Parses an expression. Without words, every file matches.
///
/// # Errors
/// What is wrong, for a message.
pub fn parse(words: &[OsString], check: Check<'_>) -> Parsed<(Expression, Limits)> {
    let mut parser = Parser {
        words,
        at: 0,
        nested: 0,
        limits: Limits {
            least_depth: 0,
            most_depth: usize::MAX,
            depth_first: false,
            writes: false,
        },
        dialect: Dialect::Emacs,
        check,
    };
    if words.is_empty() {
        return Ok((Expression::True, parser.limits));
    }
    let expression = parser.alternatives()?;
    match parser.peek() {
        None => Ok((expression, parser.limits)),
        Some(word) => Err(format!("unexpected {} in the expression", quote(word))),
    }
}

struct Parser<'w> {
    words: &'w [OsString],
    at: usize,
    nested: usize,
    limits: Limits,
    /// The dialect of the regular expressions that follow.
    dialect: Dialect,
    check: Check<'w>,
}

impl<'w> Parser<'w> {
    fn peek(&self) -> Option<&'w OsStr> {
        self.words.get(self.at).map(OsString::as_os_str)
    }

    fn is(&self, any: &[&str]) -> bool {
        self.peek()
            .is_some_and(|word| any.iter().any(|one| word == *one))
    }

    fn value(&mut self, of: &str) -> Parsed<&'w OsStr> {
        let value = self.peek().ok_or_else(|| format!("{of} needs a value"))?;
        self.at += 1;
        Ok(value)
    }

    fn text(&mut self, of: &str) -> Parsed<&'w str> {
        let value = self.value(of)?;
        value
            .to_str()
            .ok_or_else(|| format!("{of}: {} is not UTF-8", quote(value)))
    }

    fn alternatives(&mut self) -> Parsed<Expression> {
        let mut expression = self.sequence()?;
        while self.is(&["-o", "-or"]) {
            self.at += 1;
            expression = Expression::or(expression, self.sequence()?);
        }
        Ok(expression)
    }

    fn sequence(&mut self) -> Parsed<Expression> {
        let mut expression = self.one()?;
        loop {
            if self.is(&["-a", "-and"]) {
                self.at += 1;
            } else if self.peek().is_none() || self.is(&["-o", "-or", ")"]) {
                return Ok(expression);
            }
            expression = Expression::and(expression, self.one()?);
        }
    }

    fn one(&mut self) -> Parsed<Expression> {
        self.nested += 1;
        if self.nested > MAX_NESTED {
            return Err("the expression is nested too deeply".to_owned());
        }
        let word = self.text("the expression")?;
        let parsed = match word {
            "!" | "-not" => Expression::Not(Box::new(self.one()?)),
            "(" => {
                let inside = self.alternatives()?;
                if !self.is(&[")"]) {
                    return Err("'(' without ')'".to_owned());
                }
                self.at += 1;
                inside
            }
            _ => self.test(word)?,
        };
        self.nested -= 1;
        Ok(parsed)
    }

    fn test(&mut self, word: &str) -> Parsed<Expression> {
        Ok(match word {
            "-name" => Expression::Name(self.pattern(word)?, true),
            "-iname" => Expression::Name(self.pattern(word)?, false),
            "-path" | "-wholename" => Expression::Path(self.pattern(word)?, true),
            "-ipath" | "-iwholename" => Expression::Path(self.pattern(word)?, false),
            "-regex" => self.regex(word, true)?,
            "-iregex" => self.regex(word, false)?,
            "-regextype" => {
                let name = self.text(word)?;
                self.dialect = Dialect::named(name).ok_or_else(|| {
                    format!(
                        "-regextype {}: must be emacs, posix-basic, posix-extended, egrep, grep, sed or awk",
                        quote(name)
                    )
                })?;
                Expression::True
            }
            "-type" => Expression::Type(kinds(self.text(word)?)?),
            "-size" => size(self.text(word)?)?,
            "-empty" => Expression::Empty,
            "-links" => Expression::Links(self.count(word)?),
            "-inum" => Expression::Inode(self.count(word)?),
            "-uid" => Expression::User(self.count(word)?),
            "-gid" => Expression::Group(self.count(word)?),
            "-user" => {
                let owner = Owner::parse(self.text(word)?)?;
                Expression::User(Count::Exactly(owner.user.unwrap_or(0).into()))
            }
            "-group" => {
                let owner = Owner::parse(&format!(":{}", self.text(word)?))?;
                Expression::Group(Count::Exactly(owner.group.unwrap_or(0).into()))
            }
            "-mtime" => Expression::Age(Which::Modified, self.count(word)?, DAY),
            "-atime" => Expression::Age(Which::Accessed, self.count(word)?, DAY),
            "-ctime" => Expression::Age(Which::Changed, self.count(word)?, DAY),
            "-mmin" => Expression::Age(Which::Modified, self.count(word)?, MINUTE),
            "-amin" => Expression::Age(Which::Accessed, self.count(word)?, MINUTE),
            "-cmin" => Expression::Age(Which::Changed, self.count(word)?, MINUTE),
            "-newer" => Expression::Newer(self.value(word)?.to_owned(), None),
            "-perm" => rights(self.text(word)?)?,
            "-true" => Expression::True,
            "-false" => Expression::False,
            "-mindepth" => self.depth(word, |limits, depth| limits.least_depth = depth)?,
            "-maxdepth" => self.depth(word, |limits, depth| limits.most_depth = depth)?,
            "-depth" => {
                self.limits.depth_first = true;
                Expression::True
            }
            "-print" => Expression::Print,
            "-print0" => Expression::Print0,
            "-printf" => Expression::Printf(self.value(word)?.to_owned()),
            "-exec" => self.exec(word)?,
            "-ls" => Expression::Ls,
            "-prune" => Expression::Prune,
            "-quit" => Expression::Quit,
            "-delete" => {
                self.limits.depth_first = true;
                self.limits.writes = true;
                Expression::Delete
            }
            other => {
                return Err(format!(
                    "{} is not supported ('throughline find --help' lists what is)",
                    quote(other)
                ));
            }
        })
    }

    fn pattern(&mut self, of: &str) -> Parsed<Pattern> {
        let text = self.text(of)?;
        pattern(text).ok_or_else(|| format!("{of} {}: not a pattern", quote(text)))
    }

    fn regex(&mut self, of: &str, case_sensitive: bool) -> Parsed<Expression> {
        let pattern = self.text(of)?;
        compile(pattern, self.dialect, true, case_sensitive).map(Expression::Regex)
    }

    /// Parses a command up to its `;` or `{} +`.
    fn exec(&mut self, of: &str) -> Parsed<Expression> {
        let mut words: Vec<OsString> = Vec::new();
        let is_for_all = loop {
            match self.value(&format!("{of} COMMAND… \\; or {of} COMMAND… {{}} +:"))? {
                word if word == ";" => break false,
                word if word == "+" && words.last().is_some_and(|last| last == "{}") => break true,
                word => words.push(word.to_owned()),
            }
        };
        if words.is_empty() {
            return Err(format!("{of} without a command"));
        }
        if is_for_all && words.iter().filter(|word| *word == "{}").count() != 1 {
            return Err(format!(
                "{of} … {{}} +: {{}} must occur once, directly before the +"
            ));
        }
        let writes = (self.check)(&words).map_err(|why| {
            format!("{of}: {why} (only throughline commands can be run, as in 'throughline shell')")
        })?;
        self.limits.writes |= writes;
        Ok(match is_for_all {
            true => {
                words.pop();
                Expression::ExecAll(words)
            }
            false => Expression::Exec(words),
        })
    }

    fn count(&mut self, of: &str) -> Parsed<Count> {
        count(self.text(of)?)
    }

    fn depth(&mut self, of: &str, set: fn(&mut Limits, usize)) -> Parsed<Expression> {
        let text = self.text(of)?;
        let depth = text.parse();
        set(
            &mut self.limits,
            depth.map_err(|_| format!("{of} {}: not a number", quote(text)))?,
        );
        Ok(Expression::True)
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

fn count(text: &str) -> Parsed<Count> {
    let number = |digits: &str| {
        digits
            .parse::<u64>()
            .map_err(|_| format!("{} is not a number", quote(text)))
    };
    Ok(match text.split_at_checked(1) {
        Some(("+", digits)) => Count::More(number(digits)?),
        Some(("-", digits)) => Count::Fewer(number(digits)?),
        _ => Count::Exactly(number(text)?),
    })
}

/// Parses a size. Without a suffix, the unit is 512 bytes.
fn size(text: &str) -> Parsed<Expression> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'c')) => (&text[..at], 1),
        Some((at, 'w')) => (&text[..at], 2),
        Some((at, 'b')) => (&text[..at], 512),
        Some((at, 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        _ => (text, 512),
    };
    Ok(Expression::Size(count(digits)?, unit))
}

fn kinds(text: &str) -> Parsed<Vec<FileType>> {
    let kind = |letter: &str| match letter {
        "f" => Ok(FileType::File),
        "d" => Ok(FileType::Directory),
        "l" => Ok(FileType::Symlink),
        "p" => Ok(FileType::Fifo),
        "s" => Ok(FileType::Socket),
        "b" => Ok(FileType::BlockDevice),
        "c" => Ok(FileType::CharDevice),
        other => Err(format!(
            "-type {}: must be f, d, l, p, s, b or c",
            quote(other)
        )),
    };
    text.split(',').map(kind).collect()
}

fn rights(text: &str) -> Parsed<Expression> {
    let (how, mode) = match text.split_at_checked(1) {
        Some(("-", mode)) => (Rights::All, mode),
        Some(("/", mode)) => (Rights::Any, mode),
        _ => (Rights::Exactly, text),
    };
    let change = ModeChange::parse(mode)?;
    Ok(Expression::Mode(how, change.apply(0, false, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed<(Expression, Limits)> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        let check = |words: &[OsString]| match words[0] == "rm" {
            true => Ok(true),
            false => Err("no command".to_owned()),
        };
        parse(&words, &check)
    }

    #[test]
    fn operators_bind_as_in_find() {
        let (expression, _) = parsed("-true -o -false -true").unwrap();
        assert!(matches!(expression, Expression::Or(..)));
        let (expression, limits) = parsed("( -true -o -false ) -maxdepth 3 ! -print0").unwrap();
        assert!(matches!(expression, Expression::And(..)) && expression.acts());
        assert_eq!(limits.most_depth, 3);
        assert!(parsed("-delete").unwrap().1.depth_first);
        assert!(parsed("-exec rm {} ;").unwrap().1.writes);
        for bad in [
            "(",
            ")",
            "-name",
            "!",
            "-o",
            "-true -o",
            "-type q",
            "-size x",
            "-mtime +",
            "-perm 9",
            "-exec rm",
            "-exec ;",
            "-exec sh -c true ;",
            "-regex \\(",
            "-regextype perl -true",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed(&"! ".repeat(1000)).is_err());
    }
}
