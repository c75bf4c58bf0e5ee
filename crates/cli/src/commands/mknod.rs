//! `mknod`.

use clap::Args;
use throughline::{Attributes, DeviceNumber, NewNode};
use throughline_forms::mode::ModeChange;

use crate::context::Context;
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Arguments of `mknod`.
#[derive(Args, Debug)]
pub(crate) struct MknodArgs {
    /// The file to make in an image
    #[arg(value_name = "IMAGE:/PATH")]
    place: Place,
    /// b: block device, c or u: character device, p: fifo, s: socket
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: Kind,
    /// Major number of a device
    major: Option<u32>,
    /// Minor number of a device
    minor: Option<u32>,
    /// Permission bits as for chmod, instead of rw-rw-rw- less the umask
    #[arg(short, long, value_name = "MODE", value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
}

/// What a node can be.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Block,
    Character,
    Fifo,
    Socket,
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "b" => Ok(Kind::Block),
        "c" | "u" => Ok(Kind::Character),
        "p" => Ok(Kind::Fifo),
        "s" => Ok(Kind::Socket),
        _ => Err("must be b, c, u, p or s".to_owned()),
    }
}

/// Creates the node. This needs no root privileges, because the node is only a name in an image.
pub(crate) fn run(args: &MknodArgs, context: &mut Context) -> Result<(), Failure> {
    let device = match (args.major, args.minor) {
        (Some(major), Some(minor)) => Some(DeviceNumber { major, minor }),
        _ => None,
    };
    let kind = match (args.kind, device) {
        (Kind::Block, Some(device)) => NewNode::BlockDevice(device),
        (Kind::Character, Some(device)) => NewNode::CharDevice(device),
        (Kind::Fifo, None) if args.major.is_none() => NewNode::Fifo,
        (Kind::Socket, None) if args.major.is_none() => NewNode::Socket,
        (Kind::Block | Kind::Character, None) => {
            return Err(Failure::Usage(
                "a device has a major and a minor number: mknod IMAGE:/dev/null c 1 3".into(),
            ));
        }
        (Kind::Fifo | Kind::Socket, _) => {
            return Err(Failure::Usage(
                "fifos and sockets have no major and minor number".into(),
            ));
        }
    };
    let umask = context.images.umask;
    let plain = 0o666 & !umask;
    let mode = match &args.mode {
        Some(change) => change.apply(0o666, false, umask),
        None => plain,
    };
    let opened = context.open(&args.place, Access::Write)?;
    opened
        .volume
        .make_node(&opened.path, kind, &Attributes::new().mode(mode))
        .doing(|| format!("cannot make {}", args.place))?;
    Ok(())
}
