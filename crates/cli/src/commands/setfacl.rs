//! `setfacl`.

use std::path::{Path, PathBuf};

use clap::Args;
use throughline::{Attributes, Metadata, Node};
use throughline_forms::acl::{ACCESS, Acl, DEFAULT, Entry, Tag, parse};
use throughline_forms::owner::{Names, Owner};

use super::getfacl::read;
use crate::context::Context;
use crate::dump::{self, Paragraph};
use crate::images::Access;
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::walk::{Reach, each};

/// ACL entries separated by commas.
#[derive(Clone, Debug)]
struct Entries(Vec<Entry>);

fn entries(text: &str) -> Result<Entries, String> {
    parse(text).map(Entries)
}

/// Parses entries one per line or separated by commas; `#` starts a comment.
fn entries_of_file(path: &str) -> Result<Entries, String> {
    let text = dump::text(Path::new(path)).map_err(|failure| failure.to_string())?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    entries(&lines.collect::<Vec<_>>().join(","))
}

/// Arguments of `setfacl`.
#[derive(Args, Debug)]
pub(crate) struct SetfaclArgs {
    /// Files in images; with --restore, the directory for names without an image
    #[arg(required_unless_present = "restore", value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Add or change these entries: u:NAME:rwx, g:NAME:rx, m::r, o::-; the prefix d: is for the default ACL
    #[arg(short, long, value_name = "ENTRIES", value_parser = entries)]
    modify: Vec<Entries>,
    /// The same, with the entries from this file; -: standard input
    #[arg(short = 'M', long, value_name = "FILE", value_parser = entries_of_file)]
    modify_file: Vec<Entries>,
    /// Remove these entries: u:NAME, g:NAME
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = entries)]
    remove: Vec<Entries>,
    /// The same, with the entries from this file
    #[arg(short = 'X', long, value_name = "FILE", value_parser = entries_of_file)]
    remove_file: Vec<Entries>,
    /// Replace all entries by these
    #[arg(long, value_name = "ENTRIES", value_parser = entries)]
    set: Vec<Entries>,
    /// The same, with the entries from this file
    #[arg(long, value_name = "FILE", value_parser = entries_of_file)]
    set_file: Vec<Entries>,
    /// Restore from the output of 'getfacl' in this file: ACLs, owners, groups, set-id and sticky bits; -:
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "modify", "modify_file", "remove", "remove_file", "set", "set_file", "remove_all", "remove_default",
        "default", "no_mask", "recursive",
    ])]
    restore: Option<PathBuf>,
    /// Remove all entries except those of owner, group and others
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the default ACL
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Apply all entries to the default ACL
    #[arg(short, long)]
    default: bool,
    /// Do not recompute the mask from the entries that it applies to
    #[arg(short, long)]
    no_mask: bool,
    /// Include the contents of directories; symbolic links are skipped
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    glob: Glob,
}

impl SetfaclArgs {
    fn modified(&self) -> Vec<&Entry> {
        both(&self.modify, &self.modify_file)
    }

    fn removed(&self) -> Vec<&Entry> {
        both(&self.remove, &self.remove_file)
    }

    fn newly_set(&self) -> Vec<&Entry> {
        both(&self.set, &self.set_file)
    }
}

/// The entries of both options.
fn both<'a>(words: &'a [Entries], files: &'a [Entries]) -> Vec<&'a Entry> {
    let all = words.iter().chain(files);
    all.flat_map(|entries| &entries.0).collect()
}

/// Changes the ACLs of each place.
pub(crate) fn run(args: &SetfaclArgs, context: &mut Context) -> Result<(), Failure> {
    if let Some(dump) = &args.restore {
        return restore(args, context, dump);
    }
    let lists = [args.modified(), args.removed(), args.newly_set()];
    let nothing = lists.iter().all(Vec::is_empty);
    if nothing && !args.remove_all && !args.remove_default {
        return Err(Failure::Usage(
            "nothing to do: give -m, -x, --set, -b, -k or --restore".into(),
        ));
    }
    let [modified, _, newly_set] = lists;
    let given = modified.iter().chain(&newly_set);
    let bare = |entry: &&Entry| entry.rights.is_none();
    if let Some(entry) = given.copied().find(bare) {
        let subject = entry.subject(&Names::of_host(false));
        return Err(Failure::Usage(format!(
            "an entry without permissions: {subject} (write {subject}:rwx)"
        )));
    }
    let reach = Reach::files(args.recursive, args.glob.changes());
    each(context, &args.places, reach, |_, at| {
        one(args, at.place, &at.node()?, at.meta)
    })
}

/// The requested changes of the access ACL or of the default ACL.
struct Wanted {
    set: Vec<Entry>,
    modify: Vec<Entry>,
    remove: Vec<Entry>,
    is_cleared: bool,
    keeps_mask: bool,
}

impl Wanted {
    fn of(args: &SetfaclArgs, default: bool) -> Wanted {
        let is_meant = |entry: &&Entry| (entry.default || args.default) == default;
        let of = |all: Vec<&Entry>| all.into_iter().filter(is_meant).cloned().collect();
        Wanted {
            set: of(args.newly_set()),
            modify: of(args.modified()),
            remove: of(args.removed()),
            is_cleared: args.remove_all || (default && args.remove_default),
            keeps_mask: args.no_mask,
        }
    }

    /// Whether any entries are set or modified.
    fn gives(&self) -> bool {
        !self.set.is_empty() || !self.modify.is_empty()
    }

    fn is_nothing(&self) -> bool {
        !self.gives() && self.remove.is_empty() && !self.is_cleared
    }

    /// The ACL after the change. `base` is the ACL equivalent to the mode; `searchable` decides the meaning
    /// of `X`.
    fn apply(&self, before: Acl, base: &Acl, searchable: bool) -> Acl {
        let mut acl = match self.set.is_empty() {
            true => before,
            false => Acl::default(),
        };
        let mut keeps_mask = self.keeps_mask;
        for entry in self.set.iter().chain(&self.modify) {
            if let Some(rights) = entry.rights {
                keeps_mask |= entry.tag == Tag::Mask;
                acl.set(entry.tag, rights.of(searchable));
            }
        }
        for entry in &self.remove {
            acl.remove(entry.tag);
        }
        if self.gives() {
            acl.complete(base);
        }
        // An ACL with named users or groups always has a mask.
        let is_changed = self.gives() || !self.remove.is_empty();
        if is_changed && (!keeps_mask || acl.get(Tag::Mask).is_none()) {
            acl.compute_mask();
        }
        acl
    }
}

/// Restores the ACLs of the files in a dump.
fn restore(args: &SetfaclArgs, context: &mut Context, dump: &Path) -> Result<(), Failure> {
    let paragraphs = dump::read(dump, &args.places)?;
    context.each(&paragraphs, |context, paragraph| {
        let cannot = || format!("cannot change the access rights of {}", paragraph.place);
        let bad = |why: String| Problem::new(why).met(cannot());
        let place = &paragraph.place;
        let node = context.open(place, Access::Write)?.node(true);
        let node = node.doing(cannot)?;
        let meta = node.metadata().doing(cannot)?;
        let mut attributes = Attributes::new();
        let mut special = 0;
        for comment in &paragraph.comments {
            let (what, value) = comment.split_once(": ").unwrap_or((comment, ""));
            attributes = match what {
                "owner" => attributes.uid(id(Owner::parse(value)).map_err(bad)?),
                "group" => attributes.gid(id(Owner::parse(&format!(":{value}"))).map_err(bad)?),
                "flags" => {
                    let bit = |(at, letter)| if letter == '-' { 0 } else { 0o4000_u32 >> at };
                    special = value.chars().take(3).enumerate().map(bit).sum();
                    attributes
                }
                _ => attributes,
            };
        }
        node.set_attributes(&attributes.mode(meta.mode() & 0o777 | special))
            .doing(cannot)?;
        for (default, which) in [(false, ACCESS), (true, DEFAULT)] {
            let acl = list(paragraph, default, meta.is_dir()).map_err(bad)?;
            let done = match acl.is_empty() {
                false => node.xattrs().set(which, acl.to_bytes()),
                true if default && read(place, &node, which)?.is_some() => {
                    node.xattrs().remove(which)
                }
                true => Ok(()),
            };
            done.doing(cannot)?;
        }
        Ok(())
    })
}

/// The ID, if the text names exactly one user or group.
fn id(owner: Result<Owner, String>) -> Result<u32, String> {
    let owner = owner?;
    owner
        .user
        .or(owner.group)
        .ok_or_else(|| "no name".to_owned())
}

/// The access ACL or the default ACL in a paragraph of a dump.
fn list(paragraph: &Paragraph, default: bool, searchable: bool) -> Result<Acl, String> {
    let mut acl = Acl::default();
    for (number, line) in &paragraph.lines {
        let line = String::from_utf8_lossy(line);
        let entry = line.split('#').next().unwrap_or_default();
        for entry in parse(entry).map_err(|why| format!("line {number}: {why}"))? {
            let rights = entry
                .rights
                .ok_or_else(|| format!("line {number}: an entry without permissions"))?;
            if entry.default == default {
                acl.set(entry.tag, rights.of(searchable));
            }
        }
    }
    Ok(acl)
}

fn one(args: &SetfaclArgs, place: &Place, node: &Node, meta: &Metadata) -> Result<(), Failure> {
    let cannot = || format!("cannot change the ACL of {place}");
    let base = Acl::of_mode(meta.mode());
    for default in [false, true] {
        let which = if default { DEFAULT } else { ACCESS };
        let wanted = Wanted::of(args, default);
        if wanted.is_nothing() {
            continue;
        }
        if default && !meta.is_dir() {
            if args.recursive || !wanted.gives() {
                continue;
            }
            return Err(Problem::new("only directories have a default ACL").met(cannot()));
        }
        let there = read(place, node, which)?;
        let had = there.is_some();
        let before = match (there, default, wanted.is_cleared) {
            (None, false, _) => base.clone(),
            (Some(acl), false, true) => acl.minimal(),
            (Some(acl), _, false) => acl,
            (_, true, _) => Acl::default(),
        };
        let searchable = meta.is_dir() || meta.mode() & 0o111 != 0;
        let acl = wanted.apply(before, &base, searchable);
        let done = match acl.is_empty() {
            true if had => node.xattrs().remove(which),
            true => Ok(()),
            false => node.xattrs().set(which, acl.to_bytes()),
        };
        done.doing(cannot)?;
    }
    Ok(())
}
