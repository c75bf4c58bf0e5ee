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

fn one(args: &SetfaclArgs, place: &Place, node: &Node, meta: &Metadata) -> Result<(), Failure> {
    let cannot = || format!("cannot change the access rights of {place}");
    let base = Acl::of_mode(meta.mode());
    for default in [false, true] {
        let which = if default { DEFAULT } else { ACCESS };
        let is_meant = |entry: &&Entry| (entry.default || args.default) == default;
        let of = |all: &[Entries]| -> Vec<Entry> {
            let all = all.iter().flat_map(|entries| &entries.0);
            all.filter(is_meant).cloned().collect()
        };
        let (set, modify, remove) = (of(&args.set), of(&args.modify), of(&args.remove));
        let is_cleared = if default {
            args.remove_default || args.remove_all
        } else {
            args.remove_all
        };
        if set.is_empty() && modify.is_empty() && remove.is_empty() && !is_cleared {
            continue;
        }
        if default && !meta.is_dir() {
            if args.recursive || (set.is_empty() && modify.is_empty()) {
                continue;
            }
            return Err(Problem::new("only directories have a default list").met(cannot()));
        }
        let before = read(place, node, which)?;
        let had = before.is_some();
        let mut acl = match (set.is_empty(), before) {
            (false, _) => Acl::default(),
            (true, Some(acl)) => acl,
            (true, None) if default => Acl::default(),
            (true, None) => base.clone(),
        };
        if is_cleared {
            acl = if default {
                Acl::default()
            } else {
                acl.minimal()
            };
        }
        let searchable = meta.is_dir() || meta.mode() & 0o111 != 0;
        let mut mask_given = args.no_mask;
        for entry in set.iter().chain(&modify) {
            if let Some(rights) = entry.rights {
                mask_given |= entry.tag == Tag::Mask;
                acl.set(entry.tag, rights.of(searchable));
            }
        }
        for entry in &remove {
            acl.remove(entry.tag);
        }
        let changed = !set.is_empty() || !modify.is_empty();
        if changed {
            acl.complete(&base);
        }
        // A list with users or groups has a mask in any case.
        let needs_mask = acl.get(Tag::Mask).is_none();
        if (changed || !remove.is_empty()) && (!mask_given || needs_mask) {
            let kept = acl
                .get(Tag::Mask)
                .filter(|_| remove.iter().any(|entry| entry.tag == Tag::Mask));
            if kept.is_none() {
                acl.compute_mask();
            }
        }
        let done = match acl.is_empty() {
            true if had => node.remove_xattr(which),
            true => Ok(()),
            false => node.set_xattr(which, &acl.to_bytes(), XattrMode::Either),
        };
        done.doing(cannot)?;
    }
    Ok(())
}
