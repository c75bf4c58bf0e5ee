//! The manual pages, generated from the command line's description, examples and references, and the pages of
//! our other names.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Inline, Roff, bold, roman};

use super::examples;
use crate::args::{Cli, is_global};
use crate::mount;
use crate::problem::{Problem, Result};

const MANUAL: &str = "throughline";

/// The pages that a command refers to, besides the main one.
const RELATED: &[(&str, &[&str])] = &[
    (
        "mount",
        &[
            "throughline-umount(1)",
            "throughline-status(1)",
            "fuse2fs(1)",
            "mount.fuse.throughline(8)",
            "fusermount3(1)",
        ],
    ),
    ("umount", &["throughline-mount(1)"]),
    ("status", &["throughline-mount(1)"]),
    ("install-fuse2fs", &["fuse2fs(1)"]),
    (
        "install-helpers",
        &["mount.fuse.throughline(8)", "mount(8)", "fstab(5)"],
    ),
    ("replay", &["e2fsck(8)"]),
    ("info", &["dumpe2fs(8)", "tune2fs(8)"]),
    ("cp", &["cp(1)", "throughline-shell(1)"]),
    ("find", &["find(1)"]),
    (
        "getfattr",
        &["getfattr(1)", "throughline-setfattr(1)", "xattr(7)"],
    ),
    (
        "setfattr",
        &["setfattr(1)", "throughline-getfattr(1)", "xattr(7)"],
    ),
    (
        "getfacl",
        &["getfacl(1)", "throughline-setfacl(1)", "acl(5)"],
    ),
    (
        "setfacl",
        &["setfacl(1)", "throughline-getfacl(1)", "acl(5)"],
    ),
    ("lsattr", &["lsattr(1)", "throughline-chattr(1)"]),
    ("chattr", &["chattr(1)", "throughline-lsattr(1)"]),
    ("label", &["e2label(8)", "throughline-uuid(1)"]),
    ("uuid", &["tune2fs(8)", "throughline-label(1)"]),
];

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
    std::fs::write(dir.join("fuse2fs.1"), fuse2fs())?;
    Ok(std::fs::write(
        dir.join(format!("{}.8", mount::HELPER_NAME)),
        helper(),
    )?)
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

/// For example `throughline-cp`.
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
    examples_into(&mut roff, &examples::of(&own));
    let mut related: Vec<&str> = match own.is_empty() {
        true => vec![
            "throughline-cp(1)",
            "throughline-mount(1)",
            "throughline-shell(1)",
            "fuse2fs(1)",
            "mount.fuse.throughline(8)",
            "mke2fs(8)",
            "e2fsck(8)",
            "ext4(5)",
        ],
        false => vec!["throughline(1)"],
    };
    let more = RELATED.iter().find(|(command, _)| *command == own);
    related.extend(more.map_or(&[][..], |(_, pages)| pages));
    related_into(&mut roff, &related);
    out.extend(roff.render().into_bytes());
    Ok(out)
}

fn examples_into(roff: &mut Roff, examples: &[(&str, impl AsRef<str>)]) {
    if examples.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    for (purpose, command) in examples {
        roff.control("PP", []);
        roff.text([roman(*purpose)]);
        roff.control("PP", []);
        code(roff, command.as_ref());
    }
}

/// Preformatted lines.
fn code(roff: &mut Roff, text: &str) {
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}

/// For example `throughline(1), mount(8)`.
fn related_into(roff: &mut Roff, pages: &[&str]) {
    roff.control("SH", ["SEE ALSO"]);
    let mut line: Vec<Inline> = Vec::new();
    for page in pages {
        let (name, section) = page.split_at(page.find('(').unwrap_or(page.len()));
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(section)]);
    }
    roff.text(line);
}

fn begin(name: &str, section: &str, purpose: &str, synopsis: &str) -> Roff {
    let mut roff = Roff::default();
    roff.control("TH", [name, section, "", MANUAL, MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {purpose}"))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(name), roman(format!(" {synopsis}"))]);
    roff.control("SH", ["DESCRIPTION"]);
    roff
}

/// The page of `fuse2fs`.
fn fuse2fs() -> String {
    let mut roff = begin(
        "fuse2fs",
        "1",
        "mount an ext2, ext3 or ext4 image, served by throughline",
        "IMAGE DIR [-o OPTIONS] [-f] [-s] [-d]",
    );
    roff.text([
        roman("Made by "),
        bold("throughline install-fuse2fs"),
        roman(": a link to throughline, which then takes fuse2fs's arguments and options and returns its exit codes. The server runs in the background once the mount is ready; "),
        bold("fusermount3 -u"),
        roman(", "),
        bold("umount"),
        roman("(8) and "),
        bold("throughline umount"),
        roman(" end it."),
    ]);
    roff.control("SH", ["OPTIONS"]);
    for (option, what) in [
        ("-o OPTIONS", "comma-separated; see below"),
        ("-f", "stay in the foreground"),
        ("-d", "stay in the foreground and log every request"),
        ("-s", "accepted and ignored, as by libfuse"),
        ("-h, -V", "help, version"),
    ] {
        roff.control("TP", []);
        roff.text([bold(option)]);
        roff.text([roman(what)]);
    }
    roff.control("PP", []);
    code(&mut roff, &mount::help::options());
    examples_into(
        &mut roff,
        &[
            ("Read-only:", "fuse2fs -o ro disk.img dir"),
            (
                "With root's rights on the volume for the mounting user:",
                "fuse2fs -o fakeroot disk.img dir",
            ),
        ],
    );
    related_into(
        &mut roff,
        &[
            "throughline-mount(1)",
            "throughline-install-fuse2fs(1)",
            "mount.fuse.throughline(8)",
            "fusermount3(1)",
        ],
    );
    roff.render()
}

/// The page of the helper for mount(8).
fn helper() -> String {
    let mut roff = begin(
        mount::HELPER_NAME,
        "8",
        "mount an ext2, ext3 or ext4 image by mount(8) and fstab, served by throughline",
        "IMAGE DIR [-sfnv] [-o OPTIONS]",
    );
    roff.text([
        roman("Made by "),
        bold("throughline install-helpers"),
        roman(". mount(8) runs it for the type "),
        bold("fuse.throughline"),
        roman("; there is no need to call it directly. Exit codes are those of mount(8)."),
    ]);
    roff.control("SH", ["OPTIONS"]);
    code(&mut roff, &mount::help::options());
    examples_into(
        &mut roff,
        &[
            ("Manually:", "mount -t fuse.throughline disk.img /mnt -o ro"),
            (
                "In /etc/fstab (there is no fsck for the type; mounting replays the journal):",
                "/srv/disk.img  /mnt  fuse.throughline  defaults,nofail  0 0",
            ),
        ],
    );
    related_into(
        &mut roff,
        &[
            "throughline-mount(1)",
            "throughline-install-helpers(1)",
            "fuse2fs(1)",
            "mount(8)",
            "fstab(5)",
        ],
    );
    roff.render()
}
