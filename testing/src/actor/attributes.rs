//! Calls on inode attributes.
//!
//! `stat P`, `lstat P`, `fstat FILE` (type, mode, links, owner, size, device), `statx P` (which fields are
//! supported and which attributes are set), `access P rwx [FLAGS]`, `chmod P MODE`, `fchmod FILE MODE`,
//! `chown P UID|- GID|-`, `lchown P UID GID`, `fchown FILE UID GID`, `flags P` and `setflags P FLAGS`
//! (`FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`), `addflags P FLAGS`, `dropflags P FLAGS`, `statfs P` (constant
//! fields).

use rustix::fs::{Access, AtFlags, CWD, FileType, Gid, IFlags, Stat, StatxFlags, Uid};

use super::ranges::look_at;
use super::{Answer, State, Words, done};

impl State {
    pub(super) fn attributes(&mut self, words: &Words) -> Option<Answer> {
        let owner = || words.id(2).map(Uid::from_raw);
        let group = || words.id(3).map(Gid::from_raw);
        Some(match words.text(0) {
            "stat" => rustix::fs::stat(words.path(1)).map(|stat| describe(&stat)),
            "lstat" => rustix::fs::lstat(words.path(1)).map(|stat| describe(&stat)),
            "fstat" => rustix::fs::fstat(self.file(words.text(1))).map(|stat| describe(&stat)),
            "statx" => statx(words),
            "access" => access(words),
            "chmod" => done(rustix::fs::chmod(words.path(1), words.mode(2))),
            "fchmod" => done(rustix::fs::fchmod(self.file(words.text(1)), words.mode(2))),
            "chown" => chown(words, AtFlags::empty()),
            "lchown" => chown(words, AtFlags::SYMLINK_NOFOLLOW),
            "fchown" => done(rustix::fs::fchown(
                self.file(words.text(1)),
                owner(),
                group(),
            )),
            "flags" => look_at(words, 1)
                .and_then(rustix::fs::ioctl_getflags)
                .map(|flags| format!("{:x}", flags.bits())),
            "setflags" => change_flags(words, |_, asked| asked),
            "addflags" => change_flags(words, |old, asked| old | asked),
            "dropflags" => change_flags(words, |old, asked| old & !asked),
            "statfs" => rustix::fs::statvfs(words.path(1)).map(|fs| {
                format!(
                    "bsize {} frsize {} blocks {} files {} namemax {} flags {:?}",
                    fs.f_bsize, fs.f_frsize, fs.f_blocks, fs.f_files, fs.f_namemax, fs.f_flag
                )
            }),
            _ => return None,
        })
    }
}

/// A `stat` without times and without fields that differ between two file systems in the same state.
pub(super) fn describe(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let (mode, links) = (stat.st_mode & 0o7777, stat.st_nlink);
    let mut text = format!(
        "{kind:?} {mode:04o} links {links} owner {}:{}",
        stat.st_uid, stat.st_gid
    );
    match kind {
        FileType::BlockDevice | FileType::CharacterDevice => {
            let device = stat.st_rdev;
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            text += &format!(" device {major}:{minor}");
        }
        _ => text += &format!(" size {}", stat.st_size),
    }
    text
}

fn statx(words: &Words) -> Answer {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let all = rustix::fs::statx(CWD, words.path(1), AtFlags::SYMLINK_NOFOLLOW, mask)?;
    let given = StatxFlags::from_bits_retain(all.stx_mask) & mask;
    Ok(format!(
        "all {} attributes {:?} mode {:o} links {} owner {}:{} size {} blksize {}",
        given == mask,
        all.stx_attributes,
        all.stx_mode,
        all.stx_nlink,
        all.stx_uid,
        all.stx_gid,
        all.stx_size,
        all.stx_blksize
    ))
}

fn access(words: &Words) -> Answer {
    let mut asked = Access::EXISTS;
    for letter in words.text(2).chars() {
        asked |= match letter {
            'r' => Access::READ_OK,
            'w' => Access::WRITE_OK,
            'x' => Access::EXEC_OK,
            'f' => Access::EXISTS,
            other => panic!("access {other}"),
        };
    }
    done(rustix::fs::accessat(
        CWD,
        words.path(1),
        asked,
        words.flags(3),
    ))
}

fn chown(words: &Words, flags: AtFlags) -> Answer {
    let owner = words.id(2).map(Uid::from_raw);
    let group = words.id(3).map(Gid::from_raw);
    done(rustix::fs::chownat(CWD, words.path(1), owner, group, flags))
}

fn change_flags(words: &Words, change: fn(u32, u32) -> u32) -> Answer {
    let file = look_at(words, 1)?;
    let old = rustix::fs::ioctl_getflags(&file)?;
    let asked: IFlags = words.flags(2);
    // As bits: flags unknown to rustix must be preserved.
    let new = IFlags::from_bits_retain(change(old.bits(), asked.bits()));
    done(rustix::fs::ioctl_setflags(&file, new))
}
