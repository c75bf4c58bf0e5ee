//! Manual pages, generated from a command line's description and the texts of [`crate::pages`].

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Inline, Roff, bold, roman};

use crate::command_line::without_globals;
use crate::pages::Page;
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
    let mut roff = Roff::default();
    if !own.is_empty() {
        roff.control("PP", []);
        roff.text([
            roman("Options, environment and files of all commands are on the page of "),
            bold("throughline"),
            roman("(1)."),
        ]);
    }
    if let Some(text) = command.get_after_long_help() {
        // Tables, which lines that are filled would destroy.
        roff.control("SH", ["NOTES"]);
        preformatted(&mut roff, text.to_string().trim().lines());
    }
    add(&mut roff, &Page::of(texts, &own));
    out.extend(roff.render().into_bytes());
    Ok(out)
}

/// Adds the sections of the texts.
fn add(roff: &mut Roff, page: &Page) {
    for (title, entries) in [
        ("EXIT STATUS", &page.exits),
        ("ENVIRONMENT", &page.environment),
        ("FILES", &page.files),
    ] {
        if !entries.is_empty() {
            roff.control("SH", [title]);
        }
        for (name, text) in entries {
            roff.control("TP", []);
            roff.text([bold(name)]);
            roff.text([roman(text)]);
        }
    }
    if !page.examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (purpose, lines) in &page.examples {
        roff.control("PP", []);
        roff.text([roman(purpose)]);
        preformatted(roff, lines.iter().map(String::as_str));
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut line: Vec<Inline> = Vec::new();
    for page in page.related.split(", ") {
        let (name, section) = page.split_at(page.find('(').unwrap_or(page.len()));
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(section)]);
    }
    roff.text(line);
}

/// Adds lines as they are.
fn preformatted<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("PP", []);
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}
