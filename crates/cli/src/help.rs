//! Help that is not about one command: the screen that names all of them, and pages of their own, which
//! `throughline help PAGE` prints.

use clap::Command;
use throughline_face::pages;
use throughline_face::unanswered::called;

use crate::args::Cli;
use crate::commands::manual::TEXTS;

/// The commands, by what they are for.
pub(crate) const SCREEN: &str = include_str!("help/screen.txt");
/// What `--json` prints, as a JSON Schema.
const SCHEMA: &str = include_str!("help/json-schema.json");

/// The page that this process was asked for, if it is none of a command.
pub(crate) fn page() -> Option<String> {
    if called(&["help", "options"]) {
        Some(options())
    } else if called(&["help", "json"]) {
        Some(SCHEMA.to_owned())
    } else {
        None
    }
}

/// How files are named, the options of all commands, and their environment.
fn options() -> String {
    let command = Cli::command();
    let names = command.get_long_about().cloned().unwrap_or_default();
    let mut command = command
        .override_help(None)
        .disable_help_flag(true)
        .about(names)
        .mut_subcommands(|below| below.hide(true))
        .help_template(
            "{about}\n\nOptions for all commands, before or after the command's name:\n{options}",
        );
    let text = command.render_help().to_string();
    format!("{}\n\n{}\n", text.trim_end(), pages::help(TEXTS, ""))
}

/// The command line with the examples of each command, for its help.
pub(crate) fn described() -> Command {
    pages::with_pages(Cli::command(), TEXTS)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;
    use throughline_face::command_line::is_global;

    use super::*;

    /// The commands of the screen, with their groups.
    fn grouped() -> Vec<(&'static str, &'static str)> {
        let mut all = Vec::new();
        let mut group = "";
        for line in SCREEN.lines() {
            let names = line.strip_prefix("  ").filter(|_| !group.is_empty());
            match names.filter(|names| !names.starts_with(' ')) {
                Some(names) => {
                    let names = names.split("  ").next().unwrap_or_default();
                    all.extend(names.split(", ").map(|name| (name, group)));
                }
                None if line.is_empty() => group = "",
                None if !line.contains([':', '.']) && !line.starts_with(' ') => group = line,
                None => {}
            }
        }
        all
    }

    #[test]
    fn the_screen_is_one_and_names_each_command_once() {
        assert!(SCREEN.lines().count() <= 40);
        assert!(SCREEN.lines().all(|line| line.chars().count() <= 80));
        let grouped = grouped();
        let groups: BTreeSet<_> = grouped.iter().map(|(_, group)| group).collect();
        assert_eq!(groups.len(), 5, "{groups:?}");
        let mut shown: Vec<_> = grouped.iter().map(|(name, _)| *name).collect();
        shown.sort_unstable();
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut all: Vec<_> = visible.map(Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(shown, all);
    }

    #[test]
    fn the_page_of_options_has_all_of_them() {
        let text = options();
        let command = Cli::command();
        for option in command.get_arguments().filter(|one| is_global(one)) {
            let long = option.get_long().expect("a long name");
            assert!(text.contains(&format!("--{long}")), "{long}: {text}");
        }
        for part in ["--json", "IMAGE@2", "THROUGHLINE_URLS_FILE", "NO_COLOR"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("mkfs  "), "{text}");
    }

    /// All commands and those below them, without hidden ones and those of the lab.
    fn commands() -> BTreeMap<String, Command> {
        fn below(command: &Command, above: &str, all: &mut BTreeMap<String, Command>) {
            for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
                let name = format!("{above}{}", one.get_name());
                below(one, &format!("{name} "), all);
                if name != "lab" {
                    all.insert(name, one.clone());
                }
            }
        }
        let mut all = BTreeMap::new();
        below(&described(), "", &mut all);
        all
    }

    /// The commands of ours in the lines of an example.
    fn ours(lines: &[String]) -> Vec<Vec<String>> {
        let lines = lines.iter().filter(|line| line.contains("throughline "));
        let mut found: Vec<Vec<String>> = Vec::new();
        for line in lines {
            let mut is_open = false;
            for word in shlex::split(line).expect("words of a shell") {
                match word.as_str() {
                    "throughline" => {
                        found.push(Vec::new());
                        is_open = true;
                    }
                    "|" | ">" | "&&" => is_open = false,
                    word if word.starts_with("<<") => is_open = false,
                    _ => {}
                }
                if let (true, Some(command)) = (is_open, found.last_mut()) {
                    command.push(word);
                }
            }
        }
        found
    }

    #[test]
    fn every_command_has_two_or_three_examples_that_are_understood() {
        for (name, mut command) in commands() {
            let help = command.render_long_help().to_string();
            let (_, examples) = help.split_once("\nExamples:\n").expect(&name);
            let begin = format!("throughline {name}");
            let begun = |line: &&str| {
                let rest = line.trim().strip_prefix(&begin);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let count = examples.lines().filter(begun).count();
            assert!((2..=3).contains(&count), "{name}: {count} in {examples}");
        }
        for entry in pages::assert_complete(TEXTS) {
            for (_, lines) in pages::examples(TEXTS, &entry) {
                let ours = ours(&lines);
                assert!(!ours.is_empty(), "{lines:?}");
                for words in ours {
                    let parsed = Cli::try_parse_from(words.iter().map(Into::into));
                    assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
                }
            }
        }
    }

    /// Each entry of the texts is that of a command.
    #[test]
    fn all_texts_are_used() {
        let mut entries = pages::assert_complete(TEXTS);
        entries.retain(|entry| !entry.is_empty());
        entries.sort_unstable();
        let commands = commands().into_keys().map(|name| name.replace(' ', "-"));
        let mut names: Vec<String> = commands.collect();
        names.sort_unstable();
        assert_eq!(entries, names);
    }

    /// The schema says what each command with `--json` prints, and nothing of others.
    #[test]
    fn the_schema_has_every_command_with_json() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
        let outputs = schema["properties"].as_object().expect("outputs");
        let described: Vec<String> = outputs.keys().cloned().collect();
        let has_json = |command: &Command| {
            let mut options = command.get_arguments();
            options.any(|one| one.get_long() == Some("json"))
        };
        let with_json = commands().into_iter().filter(|(_, one)| has_json(one));
        let mut names: Vec<String> = with_json.map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(described, names);
        let help = Cli::command();
        let json = help.get_arguments().find(|one| one.get_id() == "json");
        let text = json
            .and_then(|one| one.get_help())
            .expect("help")
            .to_string();
        let missing: Vec<_> = names
            .iter()
            .filter(|name| !text.contains(name.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}: {text}");
    }
}
