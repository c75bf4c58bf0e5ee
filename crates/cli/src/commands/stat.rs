//! `stat`.

use std::ffi::OsString;

use clap::Args;
use throughline::Metadata;
use throughline_forms::mode::show;
use throughline_forms::owner::Names;
use throughline_forms::time::full;

use super::describe::inode;
use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::quote;
use throughline_forms::kind::{letter, words};
use throughline_forms::stat::{Subject, fill};

/// Arguments of `stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Files in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print this format and a newline: %n name, %s size, %a mode in octal, %A in letters, %U and %G owner
    /// and group, %u and %g their IDs, %F type, %i inode, %h links, %b blocks of %B bytes, %N name with a
    /// link's target, %x %y %z %w times, %X %Y %Z %W in seconds, %t %T device numbers, %f mode in
    /// hexadecimal, %o block size
    #[arg(short = 'c', long, value_name = "FORMAT", conflicts_with = "printf")]
    format: Option<OsString>,
    /// The same without a newline, and with the escapes of C (\n, \t)
    #[arg(long, value_name = "FORMAT")]
    printf: Option<OsString>,
}

/// Shows each file in the layout of coreutils' `stat`.
pub(crate) fn run(args: &StatArgs, context: &mut Context) -> Result<(), Failure> {
    let names = Names::of_host(false);
    let mut found = Vec::new();
    context.each_opened(&args.places, Purpose::Read, |context, opened| {
        let place = &opened.place;
        let cannot = || format!("cannot stat {place}");
        let meta = opened.metadata(args.dereference).doing(cannot)?;
        let target = opened.link_target(&meta).doing(cannot)?;
        if context.json {
            found.push(inode(&place.to_shown(), target.as_deref(), &meta));
            return Ok(());
        }
        let block_bytes = opened.volume.stat_fs().doing(cannot)?.block_bytes;
        if let Some(format) = args.format.as_ref().or(args.printf.as_ref()) {
            let name = place.to_shown();
            let subject = Subject {
                name: &name,
                target: target.as_deref(),
                meta: &meta,
                block_bytes,
                names: &names,
            };
            let escapes = args.printf.is_some();
            let text = fill(format, &subject, escapes).map_err(Failure::Usage)?;
            context.out.bytes(&text)?;
            return match escapes {
                true => Ok(()),
                false => context.out.line(""),
            };
        }
        let arrow = target
            .map(|target| format!(" -> {}", quote(target)))
            .unwrap_or_default();
        // As in coreutils, a name that is safe on a terminal is printed without quotes.
        let name = place.to_shown();
        let quoted = quote(&name);
        let shown = if quoted.starts_with('$') {
            quoted
        } else {
            name.to_string_lossy().into_owned()
        };
        context.out.line(format!("  File: {shown}{arrow}"))?;
        context.out.line(layout(&meta, block_bytes, &names))
    })?;
    context.list(found)
}

fn layout(meta: &Metadata, block_bytes: u32, names: &Names) -> String {
    let device = meta
        .device()
        .map(|device| format!("     Device type: {},{}", device.major, device.minor))
        .unwrap_or_default();
    format!(
        "  Size: {:<15} Blocks: {:<10} IO Block: {:<6} {}\n\
         Inode: {:<11} Links: {}{device}\n\
         Access: ({:04o}/{})  Uid: ({:>5}/{:>8})   Gid: ({:>5}/{:>8})\n\
         Access: {}\nModify: {}\nChange: {}\n Birth: {}",
        meta.len(),
        meta.blocks_512(),
        block_bytes,
        words(meta),
        meta.ino(),
        meta.nlink(),
        meta.mode(),
        show(letter(meta.file_type()), meta.mode()),
        meta.uid(),
        names.user(meta.uid()).as_deref().unwrap_or("UNKNOWN"),
        meta.gid(),
        names.group(meta.gid()).as_deref().unwrap_or("UNKNOWN"),
        full(meta.accessed()),
        full(meta.modified()),
        full(meta.changed()),
        meta.created().map_or_else(|| "-".to_owned(), full),
    )
}
