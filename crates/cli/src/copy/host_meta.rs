//! Metadata of host files: conversion, and setting attributes.

use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{self, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use throughline::archive::host_tree::calls::Moment;
use throughline::archive::host_tree::{Attributes, Identity, Status, calls};
use throughline::internal::{from_epoch, since_epoch};
use throughline::{DeviceNumber, FileType};
use throughline_forms::owner::Owner;

use super::extended::{Holder, Refused};
use super::side::{Change, Id, Meta};
use crate::problem::{Problem, Result};

pub(super) fn apply_to(fd: impl AsFd, change: &Change) -> Result<Vec<Refused>> {
    let fd = fd.as_fd();
    apply(
        change,
        &Holder::Host(Attributes::Open(fd)),
        |uid, gid| calls::fchown(fd, uid, gid),
        |mode| calls::fchmod(fd, mode),
        |times| fs::futimens(fd, times),
    )
}

/// Sets owner, extended attributes, mode and times, in this order. A change of owner clears set-id bits and
/// capabilities, and the final mode may deny us the right to set attributes.
pub(super) fn apply(
    change: &Change,
    holder: &Holder<'_>,
    chown: impl Fn(Option<fs::Uid>, Option<fs::Gid>) -> rustix::io::Result<()>,
    chmod: impl FnOnce(Mode) -> rustix::io::Result<()>,
    utimens: impl FnOnce(&Timestamps) -> rustix::io::Result<()>,
) -> Result<Vec<Refused>> {
    let mut mode = change.mode;
    if let Some(Owner { user, group }) = change.owner {
        let gid = group.map(fs::Gid::from_raw);
        match chown(user.map(fs::Uid::from_raw), gid) {
            Ok(()) => {}
            // As in cp -p: without root, keep the group if possible, and drop the set-id bits of an owner or
            // group that was not kept.
            Err(Errno::PERM | Errno::INVAL) => {
                let kept = if chown(None, gid).is_ok() {
                    0o4000
                } else {
                    0o6000
                };
                mode = mode.map(|mode| mode & !kept);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    let refused = change.extended.give_attributes(holder);
    change.extended.give_lists(holder)?;
    if let Some(mode) = mode {
        chmod(Mode::from_raw_mode(mode))?;
    }
    if let Some((accessed, modified)) = change.times {
        utimens(&Timestamps {
            last_access: timespec(accessed),
            last_modification: timespec(modified),
        })?;
    }
    Ok(refused)
}

fn timespec(time: SystemTime) -> Timespec {
    let (tv_sec, nanos) = since_epoch(time);
    Timespec {
        tv_sec,
        tv_nsec: nanos.into(),
    }
}

fn system_time((seconds, nanos): Moment) -> SystemTime {
    from_epoch(seconds, nanos).unwrap_or(UNIX_EPOCH)
}

pub(super) fn id_of(identity: Identity) -> Id {
    Id::Host(identity.device, identity.inode)
}

pub(super) fn meta_of(status: &Status) -> Result<Meta> {
    let kind = match status.kind() {
        fs::FileType::RegularFile => FileType::File,
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::CharDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        fs::FileType::Unknown => {
            return Err(Problem::new(format!(
                "unknown kind of file, mode {:o}",
                status.mode
            )));
        }
    };
    let device = kind.is_device().then(|| DeviceNumber {
        major: fs::major(status.device_number),
        minor: fs::minor(status.device_number),
    });
    Ok(Meta {
        id: id_of(status.identity),
        kind,
        device,
        mode: status.mode & 0o7777,
        uid: status.uid,
        gid: status.gid,
        links: status.links,
        len_bytes: status.size,
        allocated_bytes: status.blocks.saturating_mul(512),
        accessed: system_time(status.accessed),
        modified: system_time(status.modified),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive() {
        for (seconds, nanos) in [(0, 0), (5, 7), (-1, 999_999_999), (-5, 0), (-5, 7)] {
            let back = timespec(system_time((seconds, nanos)));
            assert_eq!((back.tv_sec, back.tv_nsec), (seconds, nanos.into()));
        }
    }
}
