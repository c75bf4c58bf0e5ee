//! Manual pages, generated from a command line's description, examples and references.
//!
//! The latter are texts: for each command, in brackets (empty for the program itself), the pages that its
//! page refers to. Then, for each example, its purpose and its indented command lines.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Inline, Roff, bold, roman};

use crate::command_line::without_globals;
use crate::problem::{Problem, Result};

const MANUAL: &str = "throughline";

/// Writes a page and those of its subcommands into a directory.
///
/// # Errors
/// System errors.
pub fn write(dir: &Path, command: &Command, texts: &str) -> Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write(dir, below, texts)?;
    }
    Ok(std::fs::write(
        dir.join(format!("{}.1", name(command))),
        page(command, texts)?,
    )?)
}

/// The name of a command's page, such as `throughline-cp`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// A page.
///
/// # Errors
/// None that is known: it is written to memory.
pub fn page(command: &Command, texts: &str) -> Result<Vec<u8>> {
    let name = name(command).to_owned();
    let own = name.strip_prefix("throughline").unwrap_or_default();
    let own = own.trim_start_matches('-').to_owned();
    // Global options are on the main page.
    let shown = match own.is_empty() {
        true => command.clone(),
        false => without_globals(command.clone()),
    };
    let has_below = shown.get_subcommands().any(|below| !below.is_hide_set());
    let man = Man::new(shown).manual(MANUAL);
    let mut out = Vec::new();
    let failed = |error: std::io::Error| Problem::from(error);
    man.render_title(&mut out).map_err(failed)?;
    man.render_name_section(&mut out).map_err(failed)?;
    man.render_synopsis_section(&mut out).map_err(failed)?;
    man.render_description_section(&mut out).map_err(failed)?;
    man.render_options_section(&mut out).map_err(failed)?;
    if has_below {
        man.render_subcommands_section(&mut out).map_err(failed)?;
    }
    if command.get_after_long_help().is_some() {
        man.render_extra_section(&mut out).map_err(failed)?;
    }
    let mut roff = Roff::default();
    if !own.is_empty() {
        roff.control("PP", []);
        roff.text([
            roman("Options for all commands are on the page of "),
            bold("throughline"),
            roman("(1)."),
        ]);
    }
    let (related, examples) = of(texts, &own);
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (purpose, commands) in examples {
        roff.control("PP", []);
        roff.text([roman(purpose)]);
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.control("nf", []);
        for line in commands.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.control("RE", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut line: Vec<Inline> = Vec::new();
    for page in related.split(", ") {
        let (name, section) = page.split_at(page.find('(').unwrap_or(page.len()));
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(section)]);
    }
    roff.text(line);
    out.extend(roff.render().into_bytes());
    Ok(out)
}

/// The entry for a command: the related pages, and the examples with their purposes.
fn of<'a>(texts: &'a str, command: &str) -> (&'a str, Vec<(&'a str, String)>) {
    let head = format!("[{command}] ");
    let mut lines = texts.lines().skip_while(|line| !line.starts_with(&head));
    let related = lines.next().and_then(|line| line.strip_prefix(&head));
    let mut examples: Vec<(&str, String)> = Vec::new();
    for line in lines.take_while(|line| !line.starts_with('[')) {
        match (line.strip_prefix("  "), examples.last_mut()) {
            (Some(line), Some((_, commands))) => commands.extend([line, "\n"]),
            _ => examples.push((line, String::new())),
        }
    }
    (related.unwrap_or("throughline(1)"), examples)
}

/// For tests: asserts that the entry of each command is complete, and returns the number of entries.
pub fn assert_complete(texts: &str) -> usize {
    let heads = texts
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once(']'));
    let commands = heads.map(|(command, _)| command);
    let check = |command| {
        let (related, examples) = of(texts, command);
        let complete =
            |(purpose, lines): &(&str, String)| purpose.ends_with(':') && !lines.is_empty();
        assert!(
            !examples.is_empty() && examples.iter().all(complete) && related.ends_with(')'),
            "{command}"
        );
    };
    commands.map(check).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_by_their_command() {
        let texts = "[] a(1)\nUse it:\n  it\nTwice:\n  it\n  it\n[b] a(1), c(1)\nOnce:\n  b\n";
        assert_eq!(of(texts, "").1[1], ("Twice:", "it\nit\n".to_owned()));
        assert_eq!(of(texts, "b").0, "a(1), c(1)");
        assert_eq!(of(texts, "no-such"), ("throughline(1)", vec![]));
        assert_eq!(assert_complete(texts), 2);
    }
}
