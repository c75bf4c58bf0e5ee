//! `du`.

use std::collections::HashSet;
use std::ffi::OsStr;

use clap::{ArgAction, Args};
use serde_json::{Map, Value, json};
use throughline::{Dir, Metadata};

use super::describe::name_into;
use crate::args::JsonFlag;
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::{human, printable};
use crate::walk::Guard;

/// Arguments of `du`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct DuArgs {
    /// Directories and files in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
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
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

struct Count<'a> {
    args: &'a DuArgs,
    guard: Guard,
    /// Inodes with several names that were already counted.
    linked: HashSet<u64>,
    found: Vec<Value>,
}

/// Adds up each place.
pub(crate) fn run(args: &DuArgs, context: &mut Context) -> Result<(), Failure> {
    let mut count = Count {
        args,
        guard: Guard::default(),
        linked: HashSet::new(),
        found: Vec::new(),
    };
    let places = context.expand(&args.places, Access::Read)?;
    let mut all = 0u64;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Read)?;
        let cannot = || format!("cannot access {place}");
        let meta = opened.volume.symlink_metadata(&opened.path).doing(cannot)?;
        // Each place is counted separately.
        count.guard = Guard::default();
        count.linked.clear();
        if meta.is_dir() {
            let dir = opened.volume.open_dir(&opened.path).doing(cannot)?;
            all = all.saturating_add(count.directory(context, place, &dir, 0)?);
        } else {
            let bytes = count.of(&meta);
            all = all.saturating_add(bytes);
            count.show(context, &place.to_argument(), bytes)?;
        }
        Ok(())
    })?;
    if args.total {
        count.show(context, OsStr::new("total"), all)?;
    }
    if context.json {
        context.out.json(&Value::Array(count.found))?;
    }
    Ok(())
}

impl Count<'_> {
    fn of(&self, meta: &Metadata) -> u64 {
        if self.args.apparent_size || self.args.bytes {
            if meta.is_dir() || meta.is_file() || meta.is_symlink() {
                meta.len()
            } else {
                0
            }
        } else {
            meta.blocks_512().saturating_mul(512)
        }
    }

    fn directory(
        &mut self,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        depth: usize,
    ) -> Result<u64, Failure> {
        let reading = || format!("cannot read directory {place}");
        let own = dir.own_metadata().doing(reading)?;
        self.guard.enter(own.ino()).doing(reading)?;
        let inside = self.inside(context, place, dir, depth);
        self.guard.leave();
        let total = self.of(&own).saturating_add(inside?);
        if self.wanted(depth) {
            self.show(context, &place.to_argument(), total)?;
        }
        Ok(total)
    }

    /// The total of the entries of a directory.
    fn inside(
        &mut self,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        depth: usize,
    ) -> Result<u64, Failure> {
        let reading = || format!("cannot read directory {place}");
        let mut total = 0u64;
        for entry in dir.entries().doing(reading)? {
            let name = entry.doing(reading)?.file_name();
            let place = place.join(&name);
            match self.entry(context, &place, dir, &name, depth + 1) {
                Ok(bytes) => total = total.saturating_add(bytes),
                Err(failure) => context.complain(failure)?,
            }
        }
        Ok(total)
    }

    fn entry(
        &mut self,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        name: &OsStr,
        depth: usize,
    ) -> Result<u64, Failure> {
        let cannot = || format!("cannot access {place}");
        let meta = dir.symlink_metadata(name).doing(cannot)?;
        if meta.is_dir() {
            let inner = dir.open_dir(name).doing(cannot)?;
            return self.directory(context, place, &inner, depth);
        }
        if meta.nlink() > 1 && !self.linked.insert(meta.ino()) {
            return Ok(0);
        }
        let bytes = self.of(&meta);
        if self.args.all && self.wanted(depth) {
            self.show(context, &place.to_argument(), bytes)?;
        }
        Ok(bytes)
    }

    fn wanted(&self, depth: usize) -> bool {
        depth == 0 || (!self.args.summarize && self.args.max_depth.is_none_or(|max| depth <= max))
    }

    fn show(&mut self, context: &mut Context, name: &OsStr, bytes: u64) -> Result<(), Failure> {
        if context.json {
            let mut object = Map::new();
            name_into(&mut object, "name", name);
            object.insert("bytes".into(), json!(bytes));
            self.found.push(json!(object));
            return Ok(());
        }
        let size = match (self.args.human_readable, self.args.bytes) {
            (true, _) => human(bytes),
            (false, true) => bytes.to_string(),
            (false, false) => bytes.div_ceil(1024).to_string(),
        };
        context.out.bytes(format!("{size}\t").as_bytes())?;
        let shown = printable(name, context.out.terminal).into_owned();
        context.out.line(shown)
    }
}
