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
    #[arg(value_name = "KIND", value_parser = ["b", "c", "u", "p", "s"])]
    kind: String,
    /// Major number of a device
    major: Option<u32>,
    /// Minor number of a device
    minor: Option<u32>,
    /// Permission bits as for chmod, instead of rw-rw-rw- less the umask
    #[arg(short, long, value_name = "MODE", value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
}

/// Creates the node. This needs no root privileges, because the node is only a name in an image.
pub(crate) fn run(args: &MknodArgs, context: &mut Context) -> Result<(), Failure> {
    let device = args.major.zip(args.minor);
    let device = device.map(|(major, minor)| DeviceNumber { major, minor });
    let kind = match (args.kind.as_str(), args.major, device) {
        ("b", _, Some(device)) => NewNode::BlockDevice(device),
        ("c" | "u", _, Some(device)) => NewNode::CharDevice(device),
        ("p", None, _) => NewNode::Fifo,
        ("s", None, _) => NewNode::Socket,
        ("b" | "c" | "u", ..) => {
            return Err(Failure::Usage(
                "a device has a major and a minor number: mknod IMAGE:/dev/null c 1 3".into(),
            ));
        }
        _ => {
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
