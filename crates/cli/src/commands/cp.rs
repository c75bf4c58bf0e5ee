//! `cp`.

use std::time::Instant;

use clap::{ArgAction, Args};
use serde_json::json;
use throughline_forms::mode::ModeChange;
use throughline_forms::owner::Owner;

use super::mv::sources_and_target;
use crate::context::Context;
use crate::copy::{Follow, Given, Options, Preserve, Sparse, Totals, copy};
use crate::place::Place;
use crate::problem::Failure;

/// Arguments of `cp`.
#[derive(Args, Debug)]
pub(crate) struct CpArgs {
    /// Sources, then the target: a new name or a directory. - is standard input or output;
    /// in sources in images, * and ? match names
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Place>,
    /// Copy directories with their contents
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// The same as --preserve=mode,ownership,timestamps
    #[arg(short = 'p')]
    preserve_usual: bool,
    /// Preserve mode (with ACLs), ownership, timestamps, links (always preserved), xattr (extended
    /// attributes; fails if one cannot be set), or all (reports attributes that cannot be set) [without WHAT:
    /// mode,ownership,timestamps]
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mode,ownership,timestamps",
        value_parser = Preserve::parse
    )]
    preserve: Vec<Preserve>,
    /// Do not preserve this, overriding -p, -a and --preserve; the same words. Without mode, new files get
    /// default permissions
    #[arg(long, value_name = "WHAT", require_equals = true, value_parser = Preserve::parse)]
    no_preserve: Vec<Preserve>,
    /// Set the owner of every copy: USER, USER:GROUP, USER: (the user's login group) or :GROUP, by number or
    /// host name
    #[arg(long, value_name = "OWNER", value_parser = Owner::parse)]
    chown: Option<Owner>,
    /// Change the permissions of every copy: octal like 0644, or clauses like u+x,g-w
    #[arg(long, value_name = "MODE", allow_hyphen_values = true, value_parser = ModeChange::parse)]
    chmod: Option<ModeChange>,
    /// The same as -r -P --preserve=all; reports extended attributes that cannot be set
    #[arg(short, long)]
    archive: bool,
    /// Follow all symbolic links in sources
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "arguments_only"])]
    dereference: bool,
    /// Copy symbolic links as links (the default with -r)
    #[arg(
        short = 'P',
        long,
        visible_short_alias = 'd',
        overrides_with_all = ["dereference", "arguments_only"]
    )]
    no_dereference: bool,
    /// Follow symbolic links named on the command line only (the default without -r)
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    arguments_only: bool,
    /// Do not overwrite existing files
    #[arg(short, long, overrides_with_all = ["force", "update", "update_older"])]
    no_clobber: bool,
    /// Existing files to replace: all, none, or those older than their source [without WHICH: older]
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "older",
        overrides_with = "update_older"
    )]
    update: Option<Update>,
    /// The same as --update=older
    #[arg(short = 'u', overrides_with = "update")]
    update_older: bool,
    /// Replace target files that cannot be opened
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Holes: auto preserves them, always also makes holes of zero blocks, never fills them with zeroes
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        num_args = 0..=1,
        default_missing_value = "always",
        require_equals = true
    )]
    sparse: Sparse,
    /// The directory to copy into; all other arguments are then sources
    #[arg(short, long, value_name = "DIR")]
    target_directory: Option<Place>,
    /// Treat the target as a file name, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Allow overwriting host files that contain an ext volume or are in use as images; this replaces the
    /// image itself
    #[arg(long)]
    overwrite_image: bool,
    /// Print every name
    #[arg(short, long)]
    verbose: bool,
    /// Print at the end how much was copied, how fast, and with how many I/Os
    #[arg(long, action = ArgAction::SetTrue)]
    stats: bool,
}

/// Which existing files are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Update {
    /// All.
    All,
    /// None.
    None,
    /// Those older than their source.
    Older,
}

impl CpArgs {
    fn options(&self, offset_bytes: u64) -> Options {
        let recursive = self.recursive || self.archive;
        let follow = if self.dereference {
            Follow::Always
        } else if self.arguments_only {
            Follow::Arguments
        } else if self.no_dereference || recursive {
            Follow::Never
        } else {
            Follow::Arguments
        };
        let whole = [
            self.preserve_usual.then_some(Preserve::USUAL),
            self.archive.then_some(Preserve::ARCHIVE),
        ];
        let named = self.preserve.iter().copied();
        let preserve = whole.into_iter().flatten().chain(named);
        let less = self.no_preserve.iter().copied();
        let less = less.fold(Preserve::default(), Preserve::and);
        Options {
            recursive,
            preserve: preserve
                .fold(Preserve::default(), Preserve::and)
                .without(less),
            fresh_mode: less.mode,
            given: Given {
                owner: self.chown,
                mode: self.chmod.clone(),
            },
            follow,
            no_clobber: self.no_clobber || self.update == Some(Update::None),
            update: self.update_older || self.update == Some(Update::Older),
            force: self.force,
            verbose: self.verbose,
            sparse: self.sparse,
            stats: self.stats,
            exact_target: self.no_target_directory,
            overwrite_image: self.overwrite_image,
            offset_bytes,
        }
    }
}

pub(crate) fn run(args: &CpArgs, context: &mut Context) -> Result<(), Failure> {
    let (sources, target) = sources_and_target(&args.places, args.target_directory.as_ref())?;
    let offset_bytes = context.globals.offset;
    let start = Instant::now();
    let totals = copy(
        context,
        sources,
        target,
        args.target_directory.is_some(),
        &args.options(offset_bytes),
    )?;
    if args.stats {
        // A copy is complete only once it is on the disk.
        context.images.sync()?;
        say(
            context,
            totals,
            start.elapsed().as_secs_f64(),
            *target == Place::Stream,
        )?;
    }
    Ok(())
}

const MIB: f64 = (1 << 20) as f64;

/// Prints the statistics, as text or as one line of JSON. They go to standard error if standard output has
/// the copy.
fn say(
    context: &mut Context,
    totals: Totals,
    seconds: f64,
    on_stderr: bool,
) -> Result<(), Failure> {
    let bios: u64 = context
        .images
        .volumes()
        .map(|volume| volume.status().io)
        .map(|io| io.reads + io.writes)
        .sum();
    let first_submit = totals.first_submit;
    let mib = totals.bytes as f64 / MIB;
    let per = |what: f64, unit: f64| if unit > 0.0 { what / unit } else { 0.0 };
    let bios_per_mib = per(bios as f64, mib);
    let mb_per_s = per(totals.bytes as f64 / 1e6, seconds);
    let peak_mib = peak_memory_bytes().map(|bytes| bytes as f64 / MIB);
    let line = if context.json {
        json!({
            "names": totals.names,
            "bytes": totals.bytes,
            "seconds": seconds,
            "mb_per_s": mb_per_s,
            "bios": bios,
            "bios_per_mib": bios_per_mib,
            "first_submit_us": first_submit.map(|took| took.as_secs_f64() * 1e6),
            "peak_memory_mib": peak_mib,
        })
        .to_string()
    } else {
        let first = first_submit.map(|took| {
            format!(
                "first submit of a call after {:.0} us, ",
                took.as_secs_f64() * 1e6
            )
        });
        format!(
            "{} names, {} bytes in {seconds:.3} s: {mb_per_s:.0} MB/s, {bios_per_mib:.2} bios per MiB, \
             {}{:.0} MiB of memory",
            totals.names,
            totals.bytes,
            first.unwrap_or_default(),
            peak_mib.unwrap_or(0.0),
        )
    };
    if on_stderr {
        context.complaints.note(&line);
        return Ok(());
    }
    context.out.line(line)
}

/// Peak resident memory of this process, as reported by the kernel.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}
