//! The manual pages, generated from the command line's description, examples and references, and the pages
//! for the program's other names.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Inline, Roff, bold, roman};

use crate::args::{Cli, is_global};
use crate::mount;
use crate::problem::{Problem, Result};

const MANUAL: &str = "throughline";

/// For each command, in brackets (empty for the program itself): the pages that its page refers to. Then, for
/// each example, its purpose and its indented command lines.
const PAGES: &str = include_str!("manual/pages.txt");

/// The pages for the program's other names. `@OPTIONS@` is replaced by the table of options.
const FUSE2FS: &str = include_str!("manual/fuse2fs.1");
const HELPER: &str = include_str!("manual/mount.fuse.throughline.8");

/// The main page.
pub(super) fn main_page() -> Result<Vec<u8>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    page(&command)
}

/// Writes all pages into a directory.
pub(super) fn write_all(dir: &Path) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write(dir, &command)?;
    let options = escaped(&mount::help::options());
    for (name, page) in [("fuse2fs.1", FUSE2FS), ("mount.fuse.throughline.8", HELPER)] {
        std::fs::write(dir.join(name), page.replace("@OPTIONS@", &options))?;
    }
    Ok(())
}

/// Writes a page and those of its subcommands.
fn write(dir: &Path, command: &Command) -> Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write(dir, below)?;
    }
    Ok(std::fs::write(
        dir.join(format!("{}.1", name(command))),
        page(command)?,
    )?)
}

/// The name of a command's page, such as `throughline-cp`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let name = name(command).to_owned();
    let own = name.strip_prefix("throughline").unwrap_or_default();
    let own = own.trim_start_matches('-').to_owned();
    // Global options are on the main page.
    let shown = match own.is_empty() {
        true => command.clone(),
        false => command.clone().mut_args(|arg| match is_global(&arg) {
            true => arg.hide(true),
            false => arg,
        }),
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
    let (related, examples) = of(&own);
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

/// Preformatted lines for a page.
fn escaped(text: &str) -> String {
    let mut roff = Roff::default();
    for line in text.trim_end().lines() {
        roff.text([roman(line)]);
    }
    roff.to_roff().trim_end().to_owned()
}

/// The entry of [`PAGES`] for a command: the related pages, and the examples with their purposes.
fn of(command: &str) -> (&'static str, Vec<(&'static str, String)>) {
    let head = format!("[{command}] ");
    let mut lines = PAGES.lines().skip_while(|line| !line.starts_with(&head));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_by_their_command() {
        assert_eq!(of("").1.len(), 3);
        assert_eq!(of("no-such"), ("throughline(1)", vec![]));
        let heads = PAGES
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.split_once(']'));
        for (command, (related, examples)) in heads.map(|(command, _)| (command, of(command))) {
            let complete =
                |(purpose, lines): &(&str, String)| purpose.ends_with(':') && !lines.is_empty();
            assert!(
                !examples.is_empty() && examples.iter().all(complete) && related.ends_with(')'),
                "{command}"
            );
        }
    }
}
