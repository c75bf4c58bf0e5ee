//! `setfacl`.

use clap::{ArgAction, Args};
use throughline::{Metadata, Node, XattrMode};

use super::getfacl::read;
use crate::acl::{ACCESS, Acl, DEFAULT, Entry, Tag, parse};
use crate::below::{Reach, each};
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};

/// Entries with commas between them.
#[derive(Clone, Debug)]
struct Entries(Vec<Entry>);

fn entries(text: &str) -> Result<Entries, String> {
    parse(text).map(Entries)
}

/// Arguments of `setfacl`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct SetfaclArgs {
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Add these entries, or change them: u:NAME:rwx, g:NAME:rx, m::r, o::-; d: before one is for the default list
    #[arg(short, long, value_name = "ENTRIES", value_parser = entries)]
    modify: Vec<Entries>,
    /// Take these entries away: u:NAME, g:NAME
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = entries)]
    remove: Vec<Entries>,
    /// These entries instead of those that are there
    #[arg(long, value_name = "ENTRIES", value_parser = entries)]
    set: Vec<Entries>,
    /// Take away all entries but those of owner, group and others
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Take the default list away
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// All entries are for the default list
    #[arg(short, long)]
    default: bool,
    /// Leave the mask as it is, instead of what all entries that it is for need
    #[arg(short, long)]
    no_mask: bool,
    /// Directories with all that is in them; symbolic links are passed over
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Changes the lists of each place.
pub(crate) fn run(args: &SetfaclArgs, context: &mut Context) -> Result<(), Failure> {
    let nothing = args.modify.is_empty() && args.remove.is_empty() && args.set.is_empty();
    if nothing && !args.remove_all && !args.remove_default {
        return Err(Failure::Usage(
            "nothing to do: -m, -x, --set, -b or -k says what".into(),
        ));
    }
    let given = args.modify.iter().chain(&args.set);
    let bare = |entry: &&Entry| entry.rights.is_none();
    if let Some(entry) = given.flat_map(|entries| &entries.0).find(bare) {
        return Err(Failure::Usage(format!(
            "an entry without rights: {:?}",
            entry.tag
        )));
    }
    let reach = Reach {
        follow: true,
        recursive: args.recursive,
        links: false,
    };
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        each(context, &opened, reach, &mut |_, place, node, meta| {
            one(args, place, node, meta)
        })
    })
}

/// What is wanted of one of the two lists.
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
        let of = |all: &[Entries]| -> Vec<Entry> {
            let all = all.iter().flat_map(|entries| &entries.0);
            all.filter(is_meant).cloned().collect()
        };
        Wanted {
            set: of(&args.set),
            modify: of(&args.modify),
            remove: of(&args.remove),
            is_cleared: args.remove_all || (default && args.remove_default),
            keeps_mask: args.no_mask,
        }
    }

    /// Entries are given.
    fn gives(&self) -> bool {
        !self.set.is_empty() || !self.modify.is_empty()
    }

    fn is_nothing(&self) -> bool {
        !self.gives() && self.remove.is_empty() && !self.is_cleared
    }

    /// The list afterwards. `base` is what the mode says, `searchable` what `X` asks.
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
        // A list with users or groups has a mask in any case.
        let is_changed = self.gives() || !self.remove.is_empty();
        if is_changed && (!keeps_mask || acl.get(Tag::Mask).is_none()) {
            acl.compute_mask();
        }
        acl
    }
}

fn one(args: &SetfaclArgs, place: &Place, node: &Node, meta: &Metadata) -> Result<(), Failure> {
    let cannot = || format!("cannot change the access rights of {place}");
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
            return Err(Problem::new("only directories have a default list").met(cannot()));
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
            true if had => node.remove_xattr(which),
            true => Ok(()),
            false => node.set_xattr(which, &acl.to_bytes(), XattrMode::Either),
        };
        done.doing(cannot)?;
    }
    Ok(())
}
