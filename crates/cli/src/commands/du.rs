//! `du`.

use std::collections::HashSet;
use std::ffi::OsStr;

use clap::Args;
use serde_json::{Value, json};
use throughline::Metadata;

use super::describe::named;
use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::Failure;
use crate::text::human;
use crate::walk::{At, Visitor, walk};

/// Arguments of `du`.
#[derive(Args, Debug)]
pub(crate) struct DuArgs {
    /// Directories and files in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Show files too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Show only a total for each argument
    #[arg(short, long)]
    summarize: bool,
    /// Show a grand total too
    #[arg(short = 'c', long)]
    total: bool,
    /// Show only this many levels; totals include everything
    #[arg(short = 'd', long, value_name = "LEVELS", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// Show sizes as 1.5K, 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show file sizes instead of the space used
    #[arg(long)]
    apparent_size: bool,
    /// Show file sizes in bytes
    #[arg(short, long)]
    bytes: bool,
}

struct Count<'a> {
    args: &'a DuArgs,
    /// Inodes with several names that were already counted.
    linked: HashSet<u64>,
    /// A stack of totals: the grand total, then one for each file being visited and its parent directories.
    /// `None` for a file that was counted under another name.
    totals: Vec<Option<u64>>,
    found: Vec<Value>,
}

/// Adds up each place.
pub(crate) fn run(args: &DuArgs, context: &mut Context) -> Result<(), Failure> {
    let mut count = Count {
        args,
        linked: HashSet::new(),
        totals: vec![Some(0)],
        found: Vec::new(),
    };
    context.each_opened(&args.places, Purpose::Read, |context, opened| {
        // Each place is counted separately.
        count.linked.clear();
        walk(context, opened, false, &mut count)
    })?;
    if args.total {
        let all = count.totals.pop().flatten();
        count.show(context, OsStr::new("total"), all.unwrap_or_default())?;
    }
    context.list(count.found)
}

impl Visitor for Count<'_> {
    fn sorted(&self) -> bool {
        false
    }

    fn before(&mut self, _: &mut Context, at: &At<'_>) -> Result<bool, Failure> {
        let is_linked = at.depth > 0 && !at.meta.is_dir() && at.meta.nlink() > 1;
        let is_known = is_linked && !self.linked.insert(at.meta.ino());
        self.totals.push((!is_known).then(|| self.of(at.meta)));
        Ok(true)
    }

    fn after(&mut self, context: &mut Context, at: &At<'_>) -> Result<(), Failure> {
        let Some(total) = self.totals.pop().flatten() else {
            return Ok(());
        };
        if let Some(Some(above)) = self.totals.last_mut() {
            *above = above.saturating_add(total);
        }
        let is_shown = at.meta.is_dir() || at.depth == 0 || self.args.all;
        match is_shown && self.wanted(at.depth) {
            true => self.show(context, &at.place.to_shown(), total),
            false => Ok(()),
        }
    }
}

impl Count<'_> {
    fn of(&self, meta: &Metadata) -> u64 {
        match self.args.apparent_size || self.args.bytes {
            true if meta.is_dir() || meta.is_file() || meta.is_symlink() => meta.len(),
            true => 0,
            false => meta.blocks_512().saturating_mul(512),
        }
    }

    fn wanted(&self, depth: usize) -> bool {
        depth == 0 || (!self.args.summarize && self.args.max_depth.is_none_or(|max| depth <= max))
    }

    fn show(&mut self, context: &mut Context, name: &OsStr, bytes: u64) -> Result<(), Failure> {
        if context.json {
            let mut object = named(name);
            object["bytes"] = json!(bytes);
            self.found.push(object);
            return Ok(());
        }
        let size = match (self.args.human_readable, self.args.bytes) {
            (true, _) => human(bytes),
            (false, true) => bytes.to_string(),
            (false, false) => bytes.div_ceil(1024).to_string(),
        };
        context.out.bytes(format!("{size}\t").as_bytes())?;
        context.out.name_line(name)
    }
}
