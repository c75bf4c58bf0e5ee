//! `-o remount`: makes a mount read-only and changes the flags of its mount point.
//!
//! mount(8) passes all options again: those of fstab, or those in the list of mounts. Options that were fixed
//! when the server started cannot be changed; a different value is refused.
//!
//! For `ro`, the kernel first makes the mount read-only, which it refuses while a file is open for writing.
//! Then the server ends writing to the volume, and the image is as after an unmount. `rw` cannot undo that:
//! the server continues read-only.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use serde_json::Value;
use throughline_fuse::options::{MountOptions, names};
use throughline_fuse::{END_WRITING_ATTRIBUTE, mounts};

use super::trouble::{EXIT_FAILED, Trouble};
use crate::commands::status;
use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Flags of a mount point: the option, its opposite, and the kernel's flag.
const PLACE: [(&str, &str, MountFlags); 4] = [
    ("noexec", "exec", MountFlags::NOEXEC),
    ("nosuid", "suid", MountFlags::NOSUID),
    ("nodev", "dev", MountFlags::NODEV),
    ("noatime", "relatime", MountFlags::NOATIME),
];

/// Changes the mount at a directory. `options` was parsed from `lists`.
pub(crate) fn remount(dir: &Path, options: &MountOptions, lists: &[String]) -> Result<(), Trouble> {
    change(dir, options, lists).map_err(|problem| {
        let failure: Failure = problem.met(format!("cannot remount {}", quote(dir)));
        Trouble::Failed(EXIT_FAILED, failure)
    })
}

fn change(dir: &Path, options: &MountOptions, lists: &[String]) -> Result<(), Problem> {
    let place = mounts::resolve(dir)?;
    let mount = mounts::at(&place)?.ok_or_else(|| Problem::new("not mounted"))?;
    let state = status::ask(&place, &mount).map_err(|errno| match errno {
        Errno::NODATA | Errno::OPNOTSUPP => Problem::new("it is not a throughline mount"),
        other => std::io::Error::from(other).into(),
    })?;
    let settings = |name: &str| state["settings"][name].as_str().map(str::to_owned);
    if let Some(name) = options.asks_for_other(settings) {
        return Err(Problem::new(format!(
            "'{name}' cannot be changed while it is mounted; only ro and rw can"
        ))
        .with_next("unmount it and mount it again"));
    }
    let requested = Requested::of(lists, &mount.point_options);
    if !requested.read_only && state["read_only"] == Value::Bool(true) {
        return Err(
            Problem::new("the image is open read-only").with_next("unmount it and mount it again")
        );
    }
    mount_remount(&place, requested.flags, c"").map_err(|errno| explain_errno(errno, dir))?;
    if requested.read_only {
        let mut answer = [0; 64];
        rustix::fs::getxattr(&place, END_WRITING_ATTRIBUTE, &mut answer).map_err(|errno| {
            Problem::from(std::io::Error::from(errno)).with_next(
                "it is now read-only, but the image could not be closed cleanly: its server's log has the \
                 reason",
            )
        })?;
    }
    Ok(())
}

fn explain_errno(errno: Errno, dir: &Path) -> Problem {
    let problem = Problem::from(std::io::Error::from(errno));
    match errno {
        Errno::BUSY => problem.with_next(format!(
            "end the programs that write to it: 'fuser -vm {}' lists them",
            quote(dir)
        )),
        Errno::PERM => problem.with_next("run this as root, or unmount it and mount it with ro"),
        _ => problem,
    }
}

/// The requested settings. Those that the lists do not name keep their present value.
struct Requested {
    read_only: bool,
    flags: MountFlags,
}

impl Requested {
    fn of(lists: &[String], now: &str) -> Requested {
        let words: Vec<String> = lists.iter().flat_map(|list| names(list)).collect();
        // The last one wins.
        let last = |yes: &str, no: &str| {
            let word = words
                .iter()
                .rev()
                .find(|word| *word == yes || *word == no)?;
            Some(word == yes)
        };
        let is = |word: &str| now.split(',').any(|option| option == word);
        let read_only = last("ro", "rw").unwrap_or_else(|| is("ro"));
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, read_only);
        for (yes, no, flag) in PLACE {
            flags.set(flag, last(yes, no).unwrap_or_else(|| is(yes)));
        }
        Requested { read_only, flags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_not_mentioned_are_kept() {
        let requested = |list: &str, now: &str| Requested::of(&[list.to_owned()], now);
        let kept = requested("remount,ro", "rw,nosuid,nodev,noexec,relatime");
        assert!(kept.read_only);
        let place = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        assert_eq!(kept.flags, place | MountFlags::RDONLY);
        let kept = requested("remount,exec", "ro,noexec");
        assert_eq!(kept.flags, MountFlags::RDONLY);
        let kept = requested("remount,ro,rw,nosuid", "ro");
        assert_eq!(kept.flags, MountFlags::NOSUID);
    }
}
