//! `tree`.

use std::ffi::OsStr;

use clap::Args;
use serde_json::{Value, json};
use throughline::Metadata;

use super::describe::{coloured, inode};
use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Failure, Problem};
use crate::text::printable;
use crate::walk::{At, Visitor, is_hidden, walk};

/// Arguments of `tree`.
#[derive(Args, Debug)]
pub(crate) struct TreeArgs {
    /// Directories in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
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
}

/// A tree that is being shown.
struct Tree<'a> {
    args: &'a TreeArgs,
    directories: u64,
    files: u64,
    /// The prefix of the lines of each level: the branches of the levels above.
    indent: Vec<&'static str>,
    /// For JSON, a stack: the finished trees, then the contents found so far of each directory being visited.
    open: Vec<Vec<Value>>,
}

/// Shows each directory's tree.
pub(crate) fn run(args: &TreeArgs, context: &mut Context) -> Result<(), Failure> {
    let mut roots = Vec::new();
    context.each_opened(&args.places, Purpose::Read, |context, opened| {
        let mut tree = Tree {
            args,
            directories: 0,
            files: 0,
            indent: Vec::new(),
            open: vec![Vec::new()],
        };
        walk(context, opened, true, &mut tree)?;
        if context.json {
            roots.extend(tree.open.into_iter().flatten());
            return Ok(());
        }
        let plural = |count: u64, one: &str, many: &str| {
            format!("{count} {}", if count == 1 { one } else { many })
        };
        let mut summary = plural(tree.directories, "directory", "directories");
        if !args.directories {
            summary += &format!(", {}", plural(tree.files, "file", "files"));
        }
        context.out.line(format!("\n{summary}"))
    })?;
    context.list(roots)
}

impl Visitor for Tree<'_> {
    fn visits(&self, name: &OsStr, meta: &Metadata) -> bool {
        (self.args.all || !is_hidden(name)) && (!self.args.directories || meta.is_dir())
    }

    fn before(&mut self, context: &mut Context, at: &At<'_>) -> Result<bool, Failure> {
        match (at.parent, at.meta.is_dir()) {
            (None, false) => {
                let cannot = format!("cannot open directory {}", at.place);
                return Err(Problem::new("Not a directory").met(cannot));
            }
            (None, true) => {}
            (Some(_), true) => self.directories += 1,
            (Some(_), false) => self.files += 1,
        }
        match context.json {
            true => self.open.push(Vec::new()),
            false => self.line(context, at)?,
        }
        Ok(self.args.level.is_none_or(|level| at.depth < level))
    }

    fn after(&mut self, context: &mut Context, at: &At<'_>) -> Result<(), Failure> {
        if !context.json {
            self.indent.pop();
            return Ok(());
        }
        let name = at.parent.map(|(_, name)| name.to_owned());
        let name = name.unwrap_or_else(|| at.place.to_shown());
        let mut object = inode(&name, at.link_target().as_deref(), at.meta);
        let contents = self.open.pop().unwrap_or_default();
        if at.meta.is_dir() {
            object["contents"] = json!(contents);
        }
        if let Some(siblings) = self.open.last_mut() {
            siblings.push(object);
        }
        Ok(())
    }
}

impl Tree<'_> {
    /// Prints the line of a name. The start of a walk has no branch before it.
    fn line(&mut self, context: &mut Context, at: &At<'_>) -> Result<(), Failure> {
        let Some((_, name)) = at.parent else {
            self.indent.push("");
            return context.out.name_line(at.place.to_shown());
        };
        let (branch, below) = match at.is_last {
            true => ("└── ", "    "),
            false => ("├── ", "│   "),
        };
        let shown = printable(name, context.out.terminal);
        let shown = match context.out.colours() {
            true => coloured(&shown, at.meta),
            false => shown.into_owned(),
        };
        context.out.bytes(self.indent.concat().as_bytes())?;
        context.out.bytes(branch.as_bytes())?;
        context.out.bytes(&shown)?;
        if let Some(target) = at.link_target() {
            context.out.bytes(b" -> ")?;
            context.out.name(target)?;
        }
        self.indent.push(below);
        context.out.line("")
    }
}
