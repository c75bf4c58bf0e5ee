//! `ls`.

use std::ffi::OsString;
use std::time::SystemTime;

use clap::Args;
use serde_json::Value;
use throughline::{Dir, FileType, Metadata, Node, Volume};
use throughline_forms::acl;
use throughline_forms::mode::show;
use throughline_forms::owner::Names;
use throughline_forms::time::{full, short};

use super::columns::{self, Cell};
use super::describe::{coloured, inode, name_into};
use crate::context::Context;
use crate::images::{Access, Opened};
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::text::{human, printable};
use crate::walk::{Entry, Guard, entries, is_hidden};
use throughline_forms::kind::letter;

/// Arguments of `ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Directories and files in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Show names that begin with a dot, and . and ..
    #[arg(short, long)]
    all: bool,
    /// Show names that begin with a dot, but not . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Long format: mode, links, owner, group, size, time
    #[arg(short = 'l')]
    long: bool,
    /// As -l, with numeric user and group IDs
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Show inode numbers
    #[arg(short, long)]
    inode: bool,
    /// Show allocated space in KiB
    #[arg(short, long)]
    size: bool,
    /// Show sizes as 1.5K, 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// Sort by time, newest first
    #[arg(short = 't')]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,
    /// Do not sort: directory order
    #[arg(short = 'U')]
    unsorted: bool,
    /// One name per line, also on a terminal
    #[arg(short = '1')]
    one: bool,
    /// Names in columns, also without a terminal
    #[arg(short = 'C', overrides_with = "one")]
    columns: bool,
    /// Append a type indicator to names: / directory, * program, @ link, | fifo, = socket
    #[arg(short = 'F', long)]
    classify: bool,
    /// Append / to directories
    #[arg(short = 'p')]
    slash: bool,
    /// Colour names by type
    #[arg(
        long,
        visible_alias = "colour",
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        num_args = 0..=1,
        default_missing_value = "always",
        require_equals = true
    )]
    color: When,
    /// As -l, with full times
    #[arg(long)]
    full_time: bool,
    /// As -l without the owner
    #[arg(short = 'g')]
    no_owner: bool,
    /// As -l without the group
    #[arg(short = 'o')]
    no_group: bool,
}

/// When to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum When {
    /// Always.
    #[value(alias = "yes", alias = "force")]
    Always,
    /// On a terminal.
    #[value(alias = "tty", alias = "if-tty")]
    Auto,
    /// Never.
    #[value(alias = "no", alias = "none")]
    Never,
}

impl LsArgs {
    /// Whether it shows the names of owners.
    pub(crate) fn shows_names(&self) -> bool {
        self.is_long() && !self.numeric_uid_gid
    }

    fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid || self.full_time || self.no_owner || self.no_group
    }
}

struct Line {
    name: OsString,
    meta: Metadata,
    target: Option<OsString>,
    /// Whether it has an ACL, which the permission bits do not show.
    listed: bool,
}

/// Whether an inode has an ACL; `false` if it cannot be read.
fn is_listed(node: throughline::Result<Node>) -> bool {
    let has = |node: &Node, which| node.xattrs().get(which).is_ok_and(|list| list.is_some());
    node.is_ok_and(|node| has(&node, acl::ACCESS) || node.is_dir() && has(&node, acl::DEFAULT))
}

struct Listing<'a> {
    args: &'a LsArgs,
    names: Names,
    now: SystemTime,
    headers: bool,
    first: bool,
    found: Vec<Value>,
}

/// Lists files first, then directories, as coreutils does.
pub(crate) fn run(args: &LsArgs, context: &mut Context) -> Result<(), Failure> {
    let places = context.expand(&args.places, Purpose::Read)?;
    let mut listing = Listing {
        args,
        names: Names::of_host(args.numeric_uid_gid),
        now: SystemTime::now(),
        headers: places.len() > 1 || args.recursive,
        first: true,
        found: Vec::new(),
    };
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Read)?;
        let cannot = || format!("cannot access {place}");
        let mut meta = opened.metadata(false).doing(cannot)?;
        if meta.is_symlink() && !args.directory && !args.is_long() && !args.classify {
            // A link to a directory is listed as the directory, a broken link as itself.
            meta = opened.metadata(true).unwrap_or(meta);
        }
        if meta.is_dir() && !args.directory {
            dirs.push(opened);
        } else {
            let target = opened.link_target(&meta).doing(cannot)?;
            let listed = args.is_long() && is_listed(opened.volume.node_by_ino(meta.ino()));
            files.push(Line {
                name: place.to_shown(),
                meta,
                target,
                listed,
            });
        }
        Ok(())
    })?;
    if !files.is_empty() {
        listing.lines(context, None, files)?;
        listing.first = false;
    }
    for opened in dirs {
        let mut guard = Guard::default();
        let dir = opened
            .volume
            .open_dir(&opened.path)
            .doing(|| format!("cannot open directory {}", opened.place));
        let listed = dir
            .and_then(|dir| listing.directory(context, &opened, &opened.place, &dir, &mut guard));
        if let Err(failure) = listed {
            context.complain(failure)?;
        }
    }
    context.list(listing.found)
}

impl Listing<'_> {
    fn directory(
        &mut self,
        context: &mut Context,
        opened: &Opened,
        place: &Place,
        dir: &Dir,
        guard: &mut Guard,
    ) -> Result<(), Failure> {
        let reading = || format!("reading directory {place}");
        let own = dir.metadata(".").doing(reading)?;
        guard.enter(own.ino()).doing(reading)?;
        let listed = self.inside(context, opened, place, dir, own, guard);
        guard.leave();
        listed
    }

    fn inside(
        &mut self,
        context: &mut Context,
        opened: &Opened,
        place: &Place,
        dir: &Dir,
        own: Metadata,
        guard: &mut Guard,
    ) -> Result<(), Failure> {
        let reading = || format!("reading directory {place}");
        let mut lines = Vec::new();
        for Entry { name, meta } in entries(dir, !self.args.unsorted, context, reading)? {
            if !(self.args.all || self.args.almost_all) && is_hidden(&name) {
                continue;
            }
            let line = meta.and_then(|meta| {
                let target = meta
                    .is_symlink()
                    .then(|| dir.read_link(&name))
                    .transpose()?;
                Ok(Line {
                    target: target.map(Into::into),
                    listed: self.args.is_long() && is_listed(dir.node(&name)),
                    meta,
                    name: name.clone(),
                })
            });
            match line.doing(|| format!("cannot access {}", place.join(&name))) {
                Ok(line) => lines.push(line),
                Err(failure) => context.complain(failure)?,
            }
        }
        let below = lines
            .iter()
            .filter(|line| self.args.recursive && line.meta.is_dir());
        let below: Vec<OsString> = below.map(|line| line.name.clone()).collect();
        if self.args.all && !context.json {
            self.add_dots(&opened.volume, place, own, &mut lines)
                .doing(reading)?;
        }
        self.lines(context, Some(place), lines)?;
        for name in below {
            let place = place.join(&name);
            let inner = dir
                .open_dir(&name)
                .doing(|| format!("cannot open directory {place}"));
            if let Err(failure) =
                inner.and_then(|inner| self.directory(context, opened, &place, &inner, guard))
            {
                context.complain(failure)?;
            }
        }
        Ok(())
    }

    fn add_dots(
        &self,
        volume: &Volume,
        place: &Place,
        own: Metadata,
        lines: &mut Vec<Line>,
    ) -> crate::problem::Result<()> {
        let Place::Image { path, .. } = place else {
            return Err(Problem::new("not in an image"));
        };
        let parent = volume.metadata(path.join(".."))?;
        for (name, meta) in [(".", own), ("..", parent)] {
            lines.push(Line {
                name: name.into(),
                listed: self.args.is_long() && is_listed(volume.node_by_ino(meta.ino())),
                meta,
                target: None,
            });
        }
        if !self.args.unsorted {
            lines.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(())
    }

    /// Prints lines. `lines` must be sorted by name.
    fn lines(
        &mut self,
        context: &mut Context,
        header: Option<&Place>,
        mut lines: Vec<Line>,
    ) -> Result<(), Failure> {
        if self.args.by_size {
            lines.sort_by_key(|line| std::cmp::Reverse(line.meta.len()));
        } else if self.args.by_time {
            lines.sort_by_key(|line| std::cmp::Reverse(line.meta.modified()));
        }
        if self.args.reverse {
            lines.reverse();
        }
        if context.json {
            return self.keep(header, &lines);
        }
        if let Some(place) = header.filter(|_| self.headers) {
            if !self.first {
                context.out.line("")?;
            }
            context.out.name(place.to_shown())?;
            context.out.line(":")?;
        }
        self.first = false;
        if (self.args.is_long() || self.args.size) && header.is_some() {
            let blocks = lines
                .iter()
                .map(|line| line.meta.blocks_512())
                .fold(0u64, u64::saturating_add);
            context.out.line(format!("total {}", self.kib(blocks)))?;
        }
        self.rows(context, &lines)
    }

    /// Allocated 512-byte sectors as KiB, or human-readable.
    fn kib(&self, blocks_512: u64) -> String {
        if self.args.human_readable {
            human(blocks_512.saturating_mul(512))
        } else {
            blocks_512.div_ceil(2).to_string()
        }
    }

    fn rows(&self, context: &mut Context, lines: &[Line]) -> Result<(), Failure> {
        let in_columns = self.args.columns || (context.out.terminal && !self.args.one);
        if in_columns && !self.args.is_long() && !self.args.inode && !self.args.size {
            let cells = lines.iter().map(|line| {
                let cell = self.name(context, line);
                String::from_utf8_lossy(&cell).into_owned()
            });
            let shown = columns::lines(cells.collect(), columns::width());
            return context.out.bytes(shown.as_bytes());
        }
        let rows: Vec<Vec<Cell>> = lines.iter().map(|line| self.columns(line)).collect();
        for (before, line) in columns::aligned(&rows).iter().zip(lines) {
            if !before.is_empty() {
                context.out.bytes(format!("{before} ").as_bytes())?;
            }
            let name = self.name(context, line);
            context.out.bytes(&name)?;
            if let Some(target) = line.target.as_ref().filter(|_| self.args.is_long()) {
                context.out.bytes(b" -> ")?;
                context.out.name(target)?;
            }
            context.out.line("")?;
        }
        Ok(())
    }

    /// The name as shown: coloured and with its indicator.
    fn name(&self, context: &Context, line: &Line) -> Vec<u8> {
        let name = printable(&line.name, context.out.terminal);
        let in_colour = match self.args.color {
            When::Always => true,
            When::Auto => context.out.colours(),
            When::Never => false,
        };
        let mut shown = match in_colour {
            true => coloured(&name, &line.meta),
            false => name.into_owned(),
        };
        let is_dir = line.meta.is_dir();
        let sign = match line.meta.file_type() {
            FileType::Directory => Some(b'/'),
            // In the long format, the target follows the name instead of the indicator.
            FileType::Symlink if self.args.is_long() => None,
            FileType::Symlink => Some(b'@'),
            FileType::Fifo => Some(b'|'),
            FileType::Socket => Some(b'='),
            FileType::File if line.meta.mode() & 0o111 != 0 => Some(b'*'),
            _ => None,
        };
        let wanted = self.args.classify || (self.args.slash && is_dir);
        shown.extend(sign.filter(|_| wanted));
        shown
    }

    /// The cells before the name.
    fn columns(&self, line: &Line) -> Vec<Cell> {
        let meta = &line.meta;
        let mut cells = Vec::new();
        if self.args.inode {
            cells.push(Cell::right(meta.ino()));
        }
        if self.args.size {
            cells.push(Cell::right(self.kib(meta.blocks_512())));
        }
        if !self.args.is_long() {
            return cells;
        }
        let size = match meta.device() {
            Some(device) => format!("{}, {}", device.major, device.minor),
            None if self.args.human_readable => human(meta.len()),
            None => meta.len().to_string(),
        };
        let sign = if line.listed { "+" } else { "" };
        let mode = show(letter(meta.file_type()), meta.mode());
        cells.push(Cell::left(format!("{mode}{sign}")));
        cells.push(Cell::right(meta.nlink()));
        if !self.args.no_owner {
            cells.push(Cell::left(self.names.user_or_number(meta.uid())));
        }
        if !self.args.no_group {
            cells.push(Cell::left(self.names.group_or_number(meta.gid())));
        }
        cells.push(Cell::right(size));
        let time = match self.args.full_time {
            true => full(meta.modified()),
            false => short(meta.modified(), self.now),
        };
        cells.push(Cell::left(time));
        cells
    }

    fn keep(&mut self, header: Option<&Place>, lines: &[Line]) -> Result<(), Failure> {
        for line in lines {
            let mut object = inode(&line.name, line.target.as_deref(), &line.meta);
            if let Some(place) = header {
                name_into(&mut object, "directory", &place.to_shown());
            }
            self.found.push(object);
        }
        Ok(())
    }
}
