//! Parses expressions of `find`.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use crate::mode::ModeChange;
use crate::owner::Owner;
use crate::paths::pattern;
use crate::regular::{Dialect, compile};
use glob::MatchOptions;
use throughline::{FileType, Metadata};

use super::{Expression, Limits, Seen};
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
        return Ok((Expression::test(|_| true), parser.limits));
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
            "-name" => self.pattern(word, true, |seen| seen.name)?,
            "-iname" => self.pattern(word, false, |seen| seen.name)?,
            "-path" | "-wholename" => self.pattern(word, true, |seen| seen.path)?,
            "-ipath" | "-iwholename" => self.pattern(word, false, |seen| seen.path)?,
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
                Expression::test(|_| true)
            }
            "-type" => {
                let kinds = kinds(self.text(word)?)?;
                Expression::test(move |seen| kinds.contains(&seen.meta.file_type()))
            }
            "-size" => size(self.text(word)?)?,
            "-empty" => Expression::test(|seen| (seen.is_empty)()),
            "-links" => self.number(word, |meta| meta.nlink().into())?,
            "-inum" => self.number(word, Metadata::ino)?,
            "-uid" => self.number(word, |meta| meta.uid().into())?,
            "-gid" => self.number(word, |meta| meta.gid().into())?,
            "-user" => {
                let user = Owner::parse(self.text(word)?)?.user.unwrap_or(0);
                Expression::test(move |seen| seen.meta.uid() == user)
            }
            "-group" => {
                let group = Owner::parse(&format!(":{}", self.text(word)?))?;
                let group = group.group.unwrap_or(0);
                Expression::test(move |seen| seen.meta.gid() == group)
            }
            "-mtime" => self.age(word, Metadata::modified, DAY)?,
            "-atime" => self.age(word, Metadata::accessed, DAY)?,
            "-ctime" => self.age(word, Metadata::changed, DAY)?,
            "-mmin" => self.age(word, Metadata::modified, MINUTE)?,
            "-amin" => self.age(word, Metadata::accessed, MINUTE)?,
            "-cmin" => self.age(word, Metadata::changed, MINUTE)?,
            "-newer" => Expression::Newer(self.value(word)?.to_owned(), None),
            "-perm" => rights(self.text(word)?)?,
            "-true" => Expression::test(|_| true),
            "-false" => Expression::test(|_| false),
            "-mindepth" => self.depth(word, |limits, depth| limits.least_depth = depth)?,
            "-maxdepth" => self.depth(word, |limits, depth| limits.most_depth = depth)?,
            "-depth" => {
                self.limits.depth_first = true;
                Expression::test(|_| true)
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

    /// Compares a text of the file with a pattern.
    fn pattern(
        &mut self,
        of: &str,
        case_sensitive: bool,
        text_of: for<'s, 'a> fn(&'s Seen<'a>) -> &'a OsStr,
    ) -> Parsed<Expression> {
        let text = self.text(of)?;
        let pattern =
            pattern(text).ok_or_else(|| format!("{of} {}: not a pattern", quote(text)))?;
        let options = MatchOptions {
            case_sensitive,
            require_literal_separator: false,
            require_literal_leading_dot: false,
        };
        Ok(Expression::test(move |seen| {
            pattern.matches_with(&text_of(seen).to_string_lossy(), options)
        }))
    }

    fn regex(&mut self, of: &str, case_sensitive: bool) -> Parsed<Expression> {
        let regex = compile(self.text(of)?, self.dialect, true, case_sensitive)?;
        Ok(Expression::test(move |seen| {
            regex.is_match(seen.path.as_bytes())
        }))
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

    fn number(&mut self, of: &str, of_meta: fn(&Metadata) -> u64) -> Parsed<Expression> {
        let (order, number) = count(self.text(of)?)?;
        Ok(Expression::test(move |seen| {
            of_meta(seen.meta).cmp(&number) == order
        }))
    }

    /// Compares the age by one of the times, in whole units.
    fn age(
        &mut self,
        of: &str,
        time: fn(&Metadata) -> SystemTime,
        unit: Duration,
    ) -> Parsed<Expression> {
        let (order, number) = count(self.text(of)?)?;
        Ok(Expression::test(move |seen| {
            match seen.now.duration_since(time(seen.meta)) {
                Ok(age) => (age.as_secs() / unit.as_secs()).cmp(&number) == order,
                // A time in the future is younger than any age.
                Err(_) => order == Ordering::Less,
            }
        }))
    }

    fn depth(&mut self, of: &str, set: fn(&mut Limits, usize)) -> Parsed<Expression> {
        let text = self.text(of)?;
        let depth = text.parse();
        set(
            &mut self.limits,
            depth.map_err(|_| format!("{of} {}: not a number", quote(text)))?,
        );
        Ok(Expression::test(|_| true))
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// A number to compare with: `5` exactly, `+5` more, `-5` fewer.
fn count(text: &str) -> Parsed<(Ordering, u64)> {
    let (order, digits) = match text.split_at_checked(1) {
        Some(("+", digits)) => (Ordering::Greater, digits),
        Some(("-", digits)) => (Ordering::Less, digits),
        _ => (Ordering::Equal, text),
    };
    let number = digits.parse();
    let number = number.map_err(|_| format!("{} is not a number", quote(text)))?;
    Ok((order, number))
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
    let (order, number) = count(digits)?;
    Ok(Expression::test(move |seen| {
        seen.meta.len().div_ceil(unit).cmp(&number) == order
    }))
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
        Some((how @ ("-" | "/"), mode)) => (how, mode),
        _ => ("", text),
    };
    let wanted = ModeChange::parse(mode)?.apply(0, false, 0);
    Ok(match how {
        "-" => Expression::test(move |seen| seen.meta.mode() & wanted == wanted),
        "/" => Expression::test(move |seen| wanted == 0 || seen.meta.mode() & wanted != 0),
        _ => Expression::test(move |seen| seen.meta.mode() == wanted),
    })
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
