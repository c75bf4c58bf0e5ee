//! What the help and the manual page of a command say beyond its options: examples, exit codes, environment,
//! files.
//!
//! They are in a text. A command's entry begins with its name in brackets (empty for the program itself) and
//! the pages that its page refers to. `exit CODE: …`, `env NAME: …` and `file PATH: …` are lines of their
//! own, and a line that begins with `+` continues the one before. Then, for each example, its purpose and its
//! indented command lines. Exit codes of the entry `[*]` are those of commands without any of their own.

use clap::Command;

/// An entry of the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The pages that its page refers to.
    pub(crate) related: String,
    /// Exit codes, with what they mean.
    pub(crate) exits: Vec<(String, String)>,
    /// Whether the exit codes are its own.
    has_own_exits: bool,
    /// Environment variables, with what they are for.
    pub(crate) environment: Vec<(String, String)>,
    /// Files, with what they are for.
    pub(crate) files: Vec<(String, String)>,
    /// The purpose of each example, and its lines.
    pub(crate) examples: Vec<(String, Vec<String>)>,
}

impl Page {
    /// The entry of a command, without its leading `throughline`.
    pub(crate) fn of(texts: &str, command: &str) -> Page {
        let mut page = Page::own(texts, command).unwrap_or_default();
        page.has_own_exits = !page.exits.is_empty();
        if !page.has_own_exits {
            page.exits = Page::own(texts, "*").unwrap_or_default().exits;
        }
        if page.related.is_empty() {
            page.related = "throughline(1)".to_owned();
        }
        page
    }

    fn own(texts: &str, command: &str) -> Option<Page> {
        let head = format!("[{command}]");
        let mut lines = texts.lines().skip_while(|line| !line.starts_with(&head));
        let mut page = Page {
            related: lines.next()?[head.len()..].trim().to_owned(),
            ..Page::default()
        };
        // Where a continued line goes.
        let mut last = None;
        for line in lines.take_while(|line| !line.starts_with('[')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let named = match word {
                "exit" => &mut page.exits,
                "env" => &mut page.environment,
                "file" => &mut page.files,
                "+" => {
                    let list: Option<&mut Vec<(String, String)>> = match last {
                        Some("exit") => Some(&mut page.exits),
                        Some("env") => Some(&mut page.environment),
                        Some("file") => Some(&mut page.files),
                        _ => None,
                    };
                    if let Some((_, text)) = list.and_then(|list| list.last_mut()) {
                        text.extend([" ", rest]);
                    }
                    continue;
                }
                _ => {
                    match (line.strip_prefix("  "), page.examples.last_mut()) {
                        (Some(line), Some((_, lines))) => lines.push(line.to_owned()),
                        _ => page.examples.push((line.to_owned(), Vec::new())),
                    }
                    continue;
                }
            };
            let (name, text) = rest.split_once(": ").unwrap_or((rest, ""));
            named.push((name.to_owned(), text.to_owned()));
            last = Some(word);
        }
        Some(page)
    }
}

/// The most examples that help shows; a manual page shows all.
const HELP_EXAMPLES: usize = 3;
/// The width of help, in characters.
const WIDTH: usize = 98;

/// The end of a command's help: exit codes and environment of its own, and examples.
pub fn help(texts: &str, command: &str) -> String {
    let page = Page::of(texts, command);
    let mut parts = Vec::new();
    if page.has_own_exits {
        parts.push(list("Exit codes:", &page.exits));
    }
    if !page.environment.is_empty() {
        parts.push(list("Environment:", &page.environment));
    }
    if !page.examples.is_empty() {
        let mut text = "Examples:".to_owned();
        for (purpose, lines) in page.examples.iter().take(HELP_EXAMPLES) {
            text.extend(["\n  ", purpose]);
            let lines = lines.iter().map(|line| format!("\n    {line}"));
            text.extend(lines);
        }
        parts.push(text);
    }
    parts.join("\n\n")
}

/// A heading, and below it names with their texts.
fn list(heading: &str, entries: &[(String, String)]) -> String {
    let column = entries.iter().map(|(name, _)| name.len()).max();
    let column = column.unwrap_or(0).min(WIDTH / 3) + 4;
    let mut text = heading.to_owned();
    for (name, meaning) in entries {
        let mut line = format!("  {name}");
        let mut is_empty = true;
        if line.len() + 2 > column {
            text.extend(["\n", &line]);
            line.clear();
        }
        for word in meaning.split(' ') {
            if !is_empty && line.len() + 1 + word.len() > WIDTH {
                text.extend(["\n", &line]);
                line.clear();
                is_empty = true;
            }
            match is_empty {
                true => line.extend(std::iter::repeat_n(' ', column.saturating_sub(line.len()))),
                false => line.push(' '),
            }
            line.push_str(word);
            is_empty = false;
        }
        text.extend(["\n", &line]);
    }
    text
}

/// The same command line, with the texts at the end of each command's help.
pub fn with_pages(command: Command, texts: &str) -> Command {
    fn named(command: Command, name: &str, texts: &str) -> Command {
        let page = help(texts, name);
        let after = match command.get_after_long_help() {
            Some(text) => format!("{}\n\n{page}", text.to_string().trim_end()),
            None => page,
        };
        let command = match after.trim_end() {
            "" => command,
            after => command.after_long_help(after.to_owned()),
        };
        below(command, name, texts)
    }
    fn below(command: Command, above: &str, texts: &str) -> Command {
        command.mut_subcommands(|below| {
            let name = match above {
                "" => below.get_name().to_owned(),
                above => format!("{above}-{}", below.get_name()),
            };
            named(below, &name, texts)
        })
    }
    below(command, "", texts)
}

/// For tests: the purpose and the lines of each example of a command.
pub fn examples(texts: &str, command: &str) -> Vec<(String, Vec<String>)> {
    Page::of(texts, command).examples
}

/// For tests: asserts that each entry has examples, and pages to refer to. Returns the commands.
pub fn assert_complete(texts: &str) -> Vec<String> {
    let heads = texts
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once(']'));
    let commands = heads.map(|(command, _)| command);
    let mut all = Vec::new();
    for command in commands.filter(|command| *command != "*") {
        let page = Page::of(texts, command);
        let is_complete =
            |(purpose, lines): &(String, Vec<String>)| purpose.ends_with(':') && !lines.is_empty();
        let named = [&page.exits, &page.environment, &page.files];
        assert!(
            page.related.ends_with(')')
                && !page.examples.is_empty()
                && page.examples.iter().all(is_complete)
                && named
                    .into_iter()
                    .flatten()
                    .all(|(_, text)| !text.is_empty()),
            "{command}: {page:?}"
        );
        all.push(command.to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: &str = "[*]\nexit 0: good\n[] a(1)\nUse it:\n  it\nTwice:\n  it\n  it\n[b] a(1), c(1)\n\
                         exit 3: bad,\n+ very bad\nenv HOME: home\nfile /etc/b: more\nOnce:\n  b\n";

    #[test]
    fn entries_are_found_by_their_command() {
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let main = Page::of(TEXTS, "");
        let twice = vec!["it".to_owned(), "it".to_owned()];
        assert_eq!(main.examples[1], ("Twice:".to_owned(), twice));
        assert_eq!(main.exits, [pair("0", "good")]);
        let b = Page::of(TEXTS, "b");
        assert_eq!(b.related, "a(1), c(1)");
        assert_eq!(b.exits, [pair("3", "bad, very bad")]);
        assert_eq!(b.environment, [pair("HOME", "home")]);
        assert_eq!(b.files, [pair("/etc/b", "more")]);
        assert_eq!(Page::of(TEXTS, "none").related, "throughline(1)");
        assert_eq!(assert_complete(TEXTS), ["", "b"]);
    }

    #[test]
    fn help_has_what_is_the_commands_own() {
        assert_eq!(
            help(TEXTS, "b"),
            "Exit codes:\n  3  bad, very bad\n\nEnvironment:\n  HOME  home\n\nExamples:\n  Once:\n    b"
        );
        assert!(!help(TEXTS, "").contains("Exit codes"));
        assert_eq!(help(TEXTS, "none"), "");
        let long = "word ".repeat(60);
        let text = list("X:", &[("NAME".to_owned(), long.trim_end().to_owned())]);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(
            text.lines()
                .skip(2)
                .all(|line| line.starts_with("        word")),
            "{text}"
        );
    }
}
