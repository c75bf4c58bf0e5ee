//! Threads that make calls of every kind on the names of two directories, on a volume ([`Library`]) or on a
//! mount ([`OnMount`]). The order of locks is checked under them (debug builds). Nothing hangs; a call fails
//! only as another thread's call explains; a listing has each of the names that stay once.

#![allow(dead_code, unreachable_pub)] // each test uses a part of it

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use throughline::{Fallocate, FileOptions, RenameMode, Volume};

const DIRECTORIES: [&str; 2] = ["one", "two"];
/// Files of each directory that keep their names.
const KEPT: u64 = 4;
/// Names of each directory that come and go.
const LOOSE: u64 = 40;
/// The last extended attribute that is set is `user.3`.
const XATTRS: u64 = 4;
const MOST_BYTES: u64 = 300_000;

#[derive(Clone, Copy, Debug)]
pub enum Call {
    List,
    LookUp,
    StatFs,
    Read,
    ReadLink,
    GetXattr,
    OpenTwo,
    Write,
    Truncate,
    Punch,
    Map,
    Chmod,
    SetXattr,
    RemoveXattr,
    SyncFile,
    SyncVolume,
    Create,
    Link,
    Symlink,
    Mkdir,
    Rename,
    Exchange,
    Unlink,
    Rmdir,
}

use Call::*;

/// The calls and how often they are made.
const CALLS: &[(Call, u32)] = &[
    (List, 12),
    (LookUp, 12),
    (StatFs, 2),
    (Read, 6),
    (ReadLink, 2),
    (GetXattr, 3),
    (OpenTwo, 4),
    (Write, 8),
    (Truncate, 4),
    (Punch, 2),
    (Map, 1),
    (Chmod, 3),
    (SetXattr, 4),
    (RemoveXattr, 2),
    (SyncFile, 1),
    (SyncVolume, 1),
    (Create, 10),
    (Link, 4),
    (Symlink, 3),
    (Mkdir, 4),
    (Rename, 6),
    (Exchange, 4),
    (Unlink, 8),
    (Rmdir, 4),
];

impl Call {
    fn any(random: &mut fastrand::Rng) -> Call {
        let mut left = random.u32(..CALLS.iter().map(|(_, share)| share).sum::<u32>());
        let of = CALLS
            .iter()
            .find(|(_, share)| match left.checked_sub(*share) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            });
        of.expect("one of them").0
    }

    /// Whether it may take the name away.
    fn is_for_loose_names(self) -> bool {
        matches!(
            self,
            Create | Symlink | Mkdir | Rename | Exchange | Unlink | Rmdir
        )
    }

    /// Whether other threads' calls, or what the call is made on, explain this failure.
    fn may_fail_with(self, errno: i32) -> bool {
        let usual = [
            Errno::NOENT,
            Errno::EXIST,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::LOOP,
        ];
        let own: &[Errno] = match self {
            Rename | Exchange => &[Errno::NOTEMPTY, Errno::INVAL],
            Rmdir => &[Errno::NOTEMPTY],
            ReadLink => &[Errno::INVAL],
            Link => &[Errno::PERM],
            // Two may find room for one.
            SetXattr => &[Errno::NOSPC, Errno::PERM],
            GetXattr | RemoveXattr => &[Errno::NODATA, Errno::PERM],
            _ => &[],
        };
        usual
            .iter()
            .chain(own)
            .any(|known| known.raw_os_error() == errno)
    }
}

/// A failure, with its error number.
pub struct Failed(Option<i32>, String);

pub type Done<T = ()> = Result<T, Failed>;

impl From<throughline::Error> for Failed {
    fn from(error: throughline::Error) -> Failed {
        Failed(error.raw_os_error(), error.to_string())
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed(error.raw_os_error(), error.to_string())
    }
}

impl From<Errno> for Failed {
    fn from(error: Errno) -> Failed {
        io::Error::from(error).into()
    }
}

/// What the calls are made on. `one` and `other` are paths, `number` says how much.
pub trait Target: Sync {
    fn list(&self, directory: &str) -> Done<Vec<String>>;
    fn call(&self, call: Call, one: &str, other: &str, number: u64) -> Done;
}

/// A volume in this process.
pub struct Library(pub Volume);

impl Target for Library {
    fn list(&self, directory: &str) -> Done<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.0.read_dir(directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn call(&self, call: Call, one: &str, other: &str, number: u64) -> Done {
        let volume = &self.0;
        let direct = number.is_multiple_of(3);
        let open = |path: &str| FileOptions::new().direct(direct).open(volume, path);
        let attribute = format!("user.{}", number % XATTRS);
        match call {
            List | LookUp => _ = volume.symlink_metadata(one)?,
            StatFs => _ = volume.stat_fs()?,
            Read | Map => _ = open(one)?.read_at(&mut [0; 9000], number)?,
            ReadLink => _ = volume.read_link(one)?,
            GetXattr => _ = volume.xattrs(one)?.get(&attribute)?,
            OpenTwo => {
                let (first, second) = (open(one)?, open(other)?);
                first.read_at(&mut [0; 512], 0)?;
                second.write_at(&first.size()?.to_le_bytes(), number)?;
            }
            Write => _ = open(one)?.write_at(&vec![7; number as usize % 20_000], number)?,
            Truncate => open(one)?.set_len(number)?,
            Punch => open(one)?.allocate(Fallocate::PunchHole, number, 10_000)?,
            Chmod => volume.set_permissions(one, Permissions::from_mode(number as u32 & 0o777))?,
            SetXattr => volume
                .xattrs(one)?
                .set(&attribute, vec![1; number as usize % 300])?,
            RemoveXattr => volume.xattrs(one)?.remove(&attribute)?,
            SyncFile => open(one)?.sync_all()?,
            SyncVolume => volume.sync()?,
            Create => _ = volume.create_new(one)?,
            Link => volume.hard_link(one, other)?,
            Symlink => volume.symlink(format!("../{other}"), one)?,
            Mkdir => _ = volume.create_dir(one)?,
            Rename => volume.rename(one, other)?,
            Exchange => volume.rename_with(one, other, RenameMode::Exchange)?,
            Unlink => volume.remove_file(one)?,
            Rmdir => volume.remove_dir(one)?,
        }
        Ok(())
    }
}

/// A mount.
pub struct OnMount(pub PathBuf);

impl Target for OnMount {
    fn list(&self, directory: &str) -> Done<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.0.join(directory))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn call(&self, call: Call, one: &str, other: &str, number: u64) -> Done {
        let target = format!("../{other}");
        let (one, other) = (&self.0.join(one), &self.0.join(other));
        let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path);
        let attribute = format!("user.{}", number % XATTRS);
        match call {
            List | LookUp => _ = fs::symlink_metadata(one)?,
            StatFs => _ = rustix::fs::statvfs(&self.0)?,
            Read => _ = open(one)?.read_at(&mut [0; 9000], number)?,
            ReadLink => _ = fs::read_link(one)?,
            GetXattr => _ = rustix::fs::getxattr(one, &attribute, &mut [0; 300])?,
            OpenTwo => {
                let (first, second) = (open(one)?, open(other)?);
                first.read_at(&mut [0; 512], 0)?;
                second.write_at(&first.metadata()?.len().to_le_bytes(), number)?;
            }
            Write => _ = open(one)?.write_at(&vec![7; number as usize % 20_000], number)?,
            Truncate => open(one)?.set_len(number)?,
            Punch => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(open(one)?, how, number, 10_000)?;
            }
            Map => map(one),
            Chmod => fs::set_permissions(one, Permissions::from_mode(number as u32 & 0o777))?,
            SetXattr => {
                let value = vec![1; number as usize % 300];
                rustix::fs::setxattr(one, &attribute, &value, XattrFlags::empty())?;
            }
            RemoveXattr => rustix::fs::removexattr(one, &attribute)?,
            SyncFile => open(one)?.sync_all()?,
            SyncVolume => rustix::fs::syncfs(fs::File::open(&self.0)?)?,
            Create => _ = fs::File::create_new(one)?,
            Link => fs::hard_link(one, other)?,
            Symlink => symlink(target, one)?,
            Mkdir => fs::create_dir(one)?,
            Rename => fs::rename(one, other)?,
            Exchange => rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?,
            Unlink => fs::remove_file(one)?,
            Rmdir => fs::remove_dir(one)?,
        }
        Ok(())
    }
}

/// Reads and writes through a mapping, by a program: no safe code maps memory. A file that is shorter kills
/// it.
fn map(path: &PathBuf) {
    let mut program = Command::new("xfs_io");
    let commands = ["mmap -rw 0 8k", "mread 0 8k", "mwrite 100 6k", "msync -s"];
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let _ = program.args(commands).arg(path).output();
}

fn kept(directory: &str, number: u64) -> String {
    format!("{directory}/kept{number}")
}

fn some_path(random: &mut fastrand::Rng, is_loose: bool) -> String {
    let directory = DIRECTORIES[random.usize(..2)];
    match random.u64(..LOOSE + KEPT) {
        number if number < LOOSE || is_loose => format!("{directory}/{:x<30}", number % LOOSE),
        number => kept(directory, number - LOOSE),
    }
}

fn step(target: &impl Target, random: &mut fastrand::Rng) -> Result<(), String> {
    let call = Call::any(random);
    let said = |Failed(_, text)| format!("{call:?}: {text}");
    if matches!(call, List) {
        let directory = DIRECTORIES[random.usize(..2)];
        let mut counts = BTreeMap::new();
        for name in target.list(directory).map_err(said)? {
            *counts.entry(name).or_insert(0) += 1;
        }
        return match (0..KEPT).find(|number| counts.get(&format!("kept{number}")) != Some(&1)) {
            Some(number) => Err(format!("kept{number} is not listed once: {counts:?}")),
            None => Ok(()),
        };
    }
    let one = some_path(random, call.is_for_loose_names());
    let other = some_path(random, true);
    match target.call(call, &one, &other, random.u64(..MOST_BYTES)) {
        Err(Failed(Some(errno), _)) if call.may_fail_with(errno) => Ok(()),
        Err(Failed(errno, text)) => Err(format!("{call:?} {one} {other}: {text} ({errno:?})")),
        Ok(()) => Ok(()),
    }
}

/// Runs so many threads with so many steps each.
pub fn run(target: &impl Target, seed: u64, threads: u64, steps: u64) -> Result<(), String> {
    for directory in DIRECTORIES {
        target
            .call(Mkdir, directory, directory, 0)
            .map_err(|Failed(_, text)| text)?;
        for number in 0..KEPT {
            let path = kept(directory, number);
            target
                .call(Create, &path, &path, 0)
                .map_err(|Failed(_, text)| text)?;
        }
    }
    let ran: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let work = |me: u64| {
            let mut random = fastrand::Rng::with_seed(seed ^ me.rotate_left(32));
            (0..steps).try_for_each(|_| step(target, &mut random))
        };
        let all: Vec<_> = (0..threads)
            .map(|me| scope.spawn(move || work(me)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("panicked".into()))
        };
        all.into_iter().map(join).collect()
    });
    ran.into_iter().collect()
}
