//! Why a mount fails: an exit code of mount(8), a reason and the next step.

use std::io;
use std::path::Path;

use throughline::Error;
use throughline::internal::OpenImages;
pub(crate) use throughline_face::unanswered::{
    MOUNT_INTERNAL as EXIT_INTERNAL, MOUNT_SYSTEM as EXIT_SYSTEM, MOUNT_USAGE as EXIT_USAGE,
};
use throughline_fuse::options::{Access, MountOptions};
use throughline_fuse::{MountError, mounts};

use super::{Plan, point};
use crate::problem::{Failure, Problem};
use crate::text::quote;

/// mount(8): the mount failed.
pub(crate) const EXIT_FAILED: u8 = 32;

/// A failed mount.
pub(crate) enum Trouble {
    /// The server has already reported the reason.
    Reported(u8),
    /// Still to be reported, with this exit code.
    Failed(u8, Failure),
}

impl Trouble {
    /// A wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Trouble {
        Trouble::Failed(EXIT_USAGE, Failure::plain(message))
    }
}

/// What the system refused; `doing` is "cannot …".
pub(super) fn system<E: Into<Problem>>(doing: impl Into<String>) -> impl FnOnce(E) -> Trouble {
    move |error| Trouble::Failed(EXIT_SYSTEM, error.into().met(doing))
}

/// The system refused a thread.
pub(super) fn no_thread(error: io::Error) -> Trouble {
    system("cannot start a thread")(error)
}

const FUSE_DEVICE: &str = "/dev/fuse";
const FUSE_CONF: &str = "/etc/fuse.conf";

/// Checks that `/proc` is mounted: starting a server and finding its mount need it.
pub(super) fn look_for_proc() -> Result<(), Trouble> {
    let Err(error) = mounts::all() else {
        return Ok(());
    };
    let problem = Problem::from(error).with_next("as root: mount -t proc proc /proc");
    Err(system("cannot read the list of mounts")(problem))
}

/// Reports what will prevent the mount, before the image is opened.
pub(super) fn check_beforehand(options: &MountOptions) -> Result<(), Failure> {
    let opened = std::fs::File::options()
        .read(true)
        .write(true)
        .open(FUSE_DEVICE);
    if let Err(error) = opened {
        return Err(without_device(error).met(format!("cannot open {FUSE_DEVICE}")));
    }
    if mounts::may_mount() {
        return Ok(());
    }
    if !helper_is_there() {
        return Err(Problem::new(
            "fusermount3 is not installed, and only root can mount without it",
        )
        .with_next("install it (Debian package fuse3)")
        .met("cannot mount"));
    }
    let shared = match options.access {
        Access::Owner => return Ok(()),
        Access::OwnerAndRoot => "allow_root",
        Access::All => "allow_other",
    };
    // If the file cannot be read, fusermount3 reports the problem.
    match std::fs::read_to_string(FUSE_CONF) {
        Ok(conf) if !conf.lines().any(|line| line.trim() == "user_allow_other") => Err(
            Problem::new("/etc/fuse.conf does not contain user_allow_other")
                .with_next("as root: echo user_allow_other >> /etc/fuse.conf; or mount as root")
                .met(format!("cannot mount with '{shared}'")),
        ),
        _ => Ok(()),
    }
}

fn without_device(error: io::Error) -> Problem {
    let next = match error.kind() {
        io::ErrorKind::NotFound => {
            "as root: modprobe fuse; for a container: docker run --device /dev/fuse"
        }
        io::ErrorKind::PermissionDenied => "as root: chmod 0666 /dev/fuse",
        _ => {
            "as root: modprobe fuse; a container needs access to it (--device /dev/fuse --cap-add SYS_ADMIN)"
        }
    };
    Problem::from(error).with_next(next)
}

fn helper_is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::var_os("FUSERMOUNT_PATH").is_some()
        || std::env::split_paths(&path)
            .chain(["/bin".into(), "/sbin".into()])
            .any(|folder| {
                ["fusermount3", "fusermount"]
                    .iter()
                    .any(|name| folder.join(name).exists())
            })
}

/// The problem of an image that could not be opened. `image` is its path in this process.
pub(super) fn opening(plan: &Plan, image: &Path, error: Error) -> Problem {
    let read_only_would_do = !plan.options.read_only
        && matches!(&error, Error::Open { source, .. }
            if matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem));
    let busy = matches!(&error, Error::Caller(throughline::Reason::Busy(_)));
    let unsupported = matches!(&error, Error::Unsupported(_));
    let offset = plan.options.offset_bytes;
    let start_bytes = plan.open.start_bytes(image).unwrap_or(offset);
    let place = (offset, "-o offset=");
    let problem = crate::images::not_opened(error, image, start_bytes, place);
    if problem.next.is_some() {
        return problem;
    }
    if read_only_would_do {
        return problem
            .with_next("to mount it read-only: -o ro; or make the image writable for you");
    }
    if busy {
        return problem.with_next(
            "unmount it there ('throughline umount DIR'), or wait until that process has ended",
        );
    }
    if unsupported && !plan.options.read_only {
        return problem.with_next("to mount it read-only: -o ro");
    }
    problem
}

/// The failure of mounting.
pub(super) fn mounting(dir: &Path, error: MountError) -> Failure {
    let doing = format!("cannot mount at {}", quote(dir));
    let MountError::Mount(error) = error else {
        return Problem::new(error.to_string()).met(doing);
    };
    // For example "fusermount3: mount failed: Permission denied", with a newline.
    let message = error.to_string();
    let message = message.trim().to_owned();
    let next = if message.contains("user_allow_other") {
        Some("as root: echo user_allow_other >> /etc/fuse.conf; or mount as root")
    } else if message.contains("mountpoint")
        || message.contains("mount point")
        || rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_err()
    {
        Some(point::OWN_DIRECTORY)
    } else if message.contains("too many FUSE filesystems") {
        Some("unmount one, or ask root to raise mount_max in /etc/fuse.conf")
    } else if message.contains("fuse device not found")
        || error.kind() == io::ErrorKind::PermissionDenied
    {
        Some(
            "check the permissions of /dev/fuse and of fusermount3, which must be setuid root; containers \
             may forbid both",
        )
    } else {
        None
    };
    let problem = if error.raw_os_error().is_some() {
        Problem::from(error)
    } else {
        Problem::new(message)
    };
    match next {
        Some(next) => problem.with_next(next),
        None => problem,
    }
    .met(doing)
}

/// The failure of a server after mounting.
pub(super) fn serving(image: &Path, error: MountError) -> Failure {
    match error {
        MountError::Close(error) => {
            Problem::from(error).met(format!("cannot write back {}", quote(image)))
        }
        other => Problem::new(other.to_string()).met("the mount has ended"),
    }
}
