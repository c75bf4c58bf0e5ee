//! `tree`.

use clap::Args;
use serde_json::{Map, Value, json};
use throughline::{Dir, Metadata};

use super::describe::{coloured, metadata_into, name_into};
use crate::args::JsonFlag;
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::printable;
use crate::walk::{Entry, Guard, sorted};

/// Arguments of `tree`.
#[derive(Args, Debug)]
pub(crate) struct TreeArgs {
    /// Directories in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Show names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Show directories only
    #[arg(short, long)]
    directories: bool,
    /// Show this many levels
    #[arg(short = 'L', long, value_name = "LEVELS")]
    level: Option<usize>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

#[derive(Default)]
struct Tree {
    guard: Guard,
    directories: u64,
    files: u64,
}

/// Shows each directory's tree.
pub(crate) fn run(args: &TreeArgs, context: &mut Context) -> Result<(), Failure> {
    let mut roots = Vec::new();
    let places = context.expand(&args.places, Access::Read)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Read)?;
        let dir = opened
            .volume
            .open_dir(&opened.path)
            .doing(|| format!("cannot open directory {place}"))?;
        let mut tree = Tree::default();
        if context.json {
            let mut root = Map::new();
            name_into(&mut root, "name", &place.to_argument());
            metadata_into(
                &mut root,
                &dir.own_metadata()
                    .doing(|| format!("cannot access {place}"))?,
            );
            root.insert(
                "contents".into(),
                tree.values(args, context, place, &dir, 0)?,
            );
            roots.push(json!(root));
            return Ok(());
        }
        let name = place.to_argument();
        let shown = printable(&name, context.out.terminal).into_owned();
        context.out.line(shown)?;
        tree.lines(args, context, place, &dir, "")?;
        let plural = |count: u64, one: &str, many: &str| {
            format!("{count} {}", if count == 1 { one } else { many })
        };
        context.out.line("")?;
        let mut summary = plural(tree.directories, "directory", "directories");
        if !args.directories {
            summary += &format!(", {}", plural(tree.files, "file", "files"));
        }
        context.out.line(summary)
    })?;
    if context.json {
        context.out.json(&Value::Array(roots))?;
    }
    Ok(())
}

impl Tree {
    /// The entries to show. Those that cannot be read are reported and left out.
    fn entries(
        &mut self,
        args: &TreeArgs,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
    ) -> Result<Vec<(std::ffi::OsString, Metadata)>, Failure> {
        let mut shown = Vec::new();
        let reading = || format!("reading directory {place}");
        for Entry { name, meta } in sorted(dir, context, reading)? {
            if !args.all && name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match meta.doing(|| format!("cannot access {}", place.join(&name))) {
                Ok(meta) if args.directories && !meta.is_dir() => {}
                Ok(meta) => {
                    if meta.is_dir() {
                        self.directories += 1;
                    } else {
                        self.files += 1;
                    }
                    shown.push((name, meta));
                }
                Err(failure) => context.complain(failure)?,
            }
        }
        Ok(shown)
    }

    /// Whether to descend into this directory.
    fn enter(
        &mut self,
        args: &TreeArgs,
        place: &Place,
        dir: &Dir,
        depth: usize,
    ) -> Result<bool, Failure> {
        if args.level.is_some_and(|level| depth >= level) {
            return Ok(false);
        }
        let cannot = || format!("reading directory {place}");
        self.guard
            .enter(dir.own_metadata().doing(cannot)?.ino())
            .doing(cannot)?;
        Ok(true)
    }

    fn lines(
        &mut self,
        args: &TreeArgs,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        indent: &str,
    ) -> Result<(), Failure> {
        if !self.enter(args, place, dir, indent.chars().count() / 4)? {
            return Ok(());
        }
        let shown = self.lines_inside(args, context, place, dir, indent);
        self.guard.leave();
        shown
    }

    fn lines_inside(
        &mut self,
        args: &TreeArgs,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        indent: &str,
    ) -> Result<(), Failure> {
        let entries = self.entries(args, context, place, dir)?;
        let last = entries.len().saturating_sub(1);
        for (index, (name, meta)) in entries.iter().enumerate() {
            let (branch, below) = if index == last {
                ("└── ", "    ")
            } else {
                ("├── ", "│   ")
            };
            let terminal = context.out.terminal;
            let shown = printable(name, terminal);
            let shown = if context.out.colours() {
                coloured(&shown, meta)
            } else {
                shown.into_owned()
            };
            context.out.bytes(indent.as_bytes())?;
            context.out.bytes(branch.as_bytes())?;
            context.out.bytes(&shown)?;
            if meta.is_symlink()
                && let Ok(target) = dir.read_link(name)
            {
                context.out.bytes(b" -> ")?;
                context
                    .out
                    .bytes(&printable(target.as_os_str(), terminal))?;
            }
            context.out.line("")?;
            if meta.is_dir() {
                let place = place.join(name);
                let inner = dir
                    .open_dir(name)
                    .doing(|| format!("cannot open directory {place}"));
                let shown = inner.and_then(|inner| {
                    self.lines(args, context, &place, &inner, &format!("{indent}{below}"))
                });
                if let Err(failure) = shown {
                    context.complain(failure)?;
                }
            }
        }
        Ok(())
    }

    fn values(
        &mut self,
        args: &TreeArgs,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        depth: usize,
    ) -> Result<Value, Failure> {
        if !self.enter(args, place, dir, depth)? {
            return Ok(json!([]));
        }
        let values = self.values_inside(args, context, place, dir, depth);
        self.guard.leave();
        values
    }

    fn values_inside(
        &mut self,
        args: &TreeArgs,
        context: &mut Context,
        place: &Place,
        dir: &Dir,
        depth: usize,
    ) -> Result<Value, Failure> {
        let mut values = Vec::new();
        for (name, meta) in self.entries(args, context, place, dir)? {
            let mut object = Map::new();
            name_into(&mut object, "name", &name);
            metadata_into(&mut object, &meta);
            if meta.is_symlink()
                && let Ok(target) = dir.read_link(&name)
            {
                name_into(&mut object, "target", target.as_os_str());
            }
            if meta.is_dir() {
                let place = place.join(&name);
                let inner = dir
                    .open_dir(&name)
                    .doing(|| format!("cannot open directory {place}"));
                match inner.and_then(|inner| self.values(args, context, &place, &inner, depth + 1))
                {
                    Ok(contents) => drop(object.insert("contents".into(), contents)),
                    Err(failure) => context.complain(failure)?,
                }
            }
            values.push(json!(object));
        }
        Ok(Value::Array(values))
    }
}
