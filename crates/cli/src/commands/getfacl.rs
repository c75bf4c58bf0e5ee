//! `getfacl`.

use clap::Args;
use throughline::Node;
use throughline_forms::acl::{ACCESS, Acl, DEFAULT, Effective};
use throughline_forms::owner::Names;

use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::walk::{At, Reach, each};

/// Arguments of `getfacl`.
#[derive(Args, Debug)]
pub(crate) struct GetfaclArgs {
    /// Files in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Show only the file's own ACL
    #[arg(short, long)]
    access: bool,
    /// Show only the default ACL of directories
    #[arg(short, long)]
    default: bool,
    /// Omit the comment lines with file, owner and group
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Show effective rights for all entries that the mask applies to
    #[arg(short = 'e', long, conflicts_with = "no_effective")]
    all_effective: bool,
    /// Do not show effective rights
    #[arg(short = 'E', long)]
    no_effective: bool,
    /// Skip files that have no ACL beyond the permission bits
    #[arg(short, long)]
    skip_base: bool,
    /// Include the contents of directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show numeric user and group IDs
    #[arg(short, long)]
    numeric: bool,
    /// Keep names unchanged (always the case; accepted for compatibility)
    #[arg(short = 'p', long, hide = true)]
    absolute_names: bool,
}

/// Shows the ACLs of each place.
pub(crate) fn run(args: &GetfaclArgs, context: &mut Context) -> Result<(), Failure> {
    let names = Names::of_host(args.numeric);
    let reach = Reach::files(args.recursive, Purpose::Read);
    each(context, &args.places, reach, |context, at| {
        show(args, context, at, &names)
    })
}

/// One of the two ACLs of an inode, if it has one.
pub(super) fn read(place: &Place, node: &Node, which: &[u8]) -> Result<Option<Acl>, Failure> {
    let cannot = || format!("cannot read the ACL of {place}");
    match node.xattrs().get(which).doing(cannot)? {
        None => Ok(None),
        Some(bytes) => match Acl::from_bytes(&bytes) {
            Some(acl) => Ok(Some(acl)),
            None => Err(Problem::new("not an ACL").met(cannot())),
        },
    }
}

fn show(
    args: &GetfaclArgs,
    context: &mut Context,
    at: &At<'_>,
    names: &Names,
) -> Result<(), Failure> {
    let (place, node, meta) = (at.place, &at.node()?, at.meta);
    let access = read(place, node, ACCESS)?;
    let default = match meta.is_dir() {
        true => read(place, node, DEFAULT)?,
        false => None,
    };
    if args.skip_base && access.is_none() && default.is_none() {
        return Ok(());
    }
    if !args.omit_header {
        context.out.bytes(b"# file: ")?;
        context.out.name_line(place.to_shown())?;
        let (uid, gid) = (meta.uid(), meta.gid());
        let (user, group) = (names.user_or_number(uid), names.group_or_number(gid));
        context
            .out
            .line(format!("# owner: {user}\n# group: {group}"))?;
        if meta.mode() & 0o7000 != 0 {
            let flag = |bit, letter| if meta.mode() & bit != 0 { letter } else { '-' };
            let (uid, gid, sticky) = (flag(0o4000, 's'), flag(0o2000, 's'), flag(0o1000, 't'));
            context.out.line(format!("# flags: {uid}{gid}{sticky}"))?;
        }
    }
    let effective = match (args.all_effective, args.no_effective) {
        (true, _) => Effective::All,
        (false, true) => Effective::No,
        (false, false) => Effective::Less,
    };
    let both = args.access == args.default;
    let mut lines = Vec::new();
    if both || args.access {
        let access = access.unwrap_or_else(|| Acl::of_mode(meta.mode()));
        lines.extend(access.lines("", names, effective));
    }
    if let (true, Some(default)) = (both || args.default, default) {
        let prefix = if both { "default:" } else { "" };
        lines.extend(default.lines(prefix, names, effective));
    }
    for line in lines {
        context.out.line(line)?;
    }
    context.out.line("")
}
