//! `overlay diff`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use throughline::{Dir, Metadata, overlay};

use super::{base_of, volume};
use crate::context::Context;
use crate::image_name::ImageName;
use crate::objects::shown;
use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Lists what an overlay changed.
pub(super) fn run(overlay: &Path, ranges: bool, context: &mut Context) -> Result<(), Failure> {
    let ImageName { file, partition } = ImageName::of(overlay);
    let doing = || format!("cannot compare {}", quote(shown(overlay)));
    let base = base_of(&file, context).map_err(|problem| problem.met(doing()))?;
    if ranges {
        let found = overlay::ranges(&file, &context.globals.image_options());
        let found = found.map_err(|error| Problem::from(error).met(doing()))?;
        let lengths = found.iter().map(|it| (it.start, it.end - it.start));
        if context.json {
            let all: Vec<Value> = lengths
                .map(|(start, len)| json!({"start_bytes": start, "len_bytes": len}))
                .collect();
            return context.out.json(&all);
        }
        for (start, len) in lengths {
            context.out.line(format!("{start} {len}"))?;
        }
        return Ok(());
    }
    let partition = partition.as_deref();
    // The overlay first: a base that is not allowed is not opened.
    let after = volume(&file, partition, context)?;
    let before = volume(&base, partition, context)?;
    let mut compared = Compared {
        context,
        found: Vec::new(),
    };
    let roots = (before.root(), after.root());
    let failed = |error: throughline::Error| Problem::from(error).met(doing());
    compared.directories(&roots.0.map_err(failed)?, &roots.1.map_err(failed)?)?;
    let found = compared.found;
    context.list(found)
}

/// Two trees while they are compared.
struct Compared<'a> {
    context: &'a mut Context,
    found: Vec<Value>,
}

/// What becomes of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    fn letter(self) -> char {
        match self {
            Change::Added => 'A',
            Change::Modified => 'M',
            Change::Deleted => 'D',
        }
    }
}

type Entries = BTreeMap<OsString, Metadata>;

impl Compared<'_> {
    /// Compares two directories, and all below them. Directories wait in a list: a tree may be deep.
    fn directories(&mut self, before: &Dir, after: &Dir) -> Result<(), Failure> {
        let mut waiting = vec![PathBuf::from("/")];
        while let Some(path) = waiting.pop() {
            self.context.interrupt().check()?;
            let (old, new) = (entries(before, &path)?, entries(after, &path)?);
            for (name, was) in &old {
                let path = path.join(name);
                match new.get(name) {
                    Some(is) if was.file_type() == is.file_type() => {
                        if is_changed(was, is) {
                            self.tell(Change::Modified, &path)?;
                        }
                        if is.is_dir() {
                            waiting.push(path);
                        }
                    }
                    _ => self.whole(Change::Deleted, before, path, was)?,
                }
            }
            for (name, is) in &new {
                let was = old.get(name);
                if was.is_none_or(|was| was.file_type() != is.file_type()) {
                    self.whole(Change::Added, after, path.join(name), is)?;
                }
            }
        }
        Ok(())
    }

    /// A file, or a directory with all that is in it.
    fn whole(
        &mut self,
        change: Change,
        root: &Dir,
        path: PathBuf,
        meta: &Metadata,
    ) -> Result<(), Failure> {
        self.tell(change, &path)?;
        let mut waiting = if meta.is_dir() {
            vec![path]
        } else {
            Vec::new()
        };
        while let Some(path) = waiting.pop() {
            self.context.interrupt().check()?;
            for (name, meta) in entries(root, &path)? {
                let path = path.join(name);
                self.tell(change, &path)?;
                if meta.is_dir() {
                    waiting.push(path);
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, change: Change, path: &Path) -> Result<(), Failure> {
        if self.context.json {
            let name = path.to_string_lossy();
            let change = change.letter().to_string();
            self.found.push(json!({"change": change, "path": name}));
            return Ok(());
        }
        self.context
            .out
            .bytes(format!("{} ", change.letter()).as_bytes())?;
        self.context.out.name_line(path)
    }
}

fn entries(root: &Dir, path: &Path) -> Result<Entries, Failure> {
    let read = || -> throughline::Result<Entries> {
        let mut found = Entries::new();
        for entry in root.read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != "." && name != ".." {
                found.insert(name, entry.metadata()?);
            }
        }
        Ok(found)
    };
    read().map_err(|error| Problem::from(error).met(format!("cannot list {}", quote(path))))
}

/// Whether a file's content or attributes differ. The status change time tells, except for directories, whose
/// time changes with the names in them.
fn is_changed(was: &Metadata, is: &Metadata) -> bool {
    let attributes = |meta: &Metadata| (meta.mode(), meta.uid(), meta.gid(), meta.flags());
    if attributes(was) != attributes(is) {
        return true;
    }
    let content = |meta: &Metadata| (meta.ino(), meta.len(), meta.modified(), meta.changed());
    !is.is_dir() && content(was) != content(is)
}
