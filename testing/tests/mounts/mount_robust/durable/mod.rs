//! One table: each call that changes something × each way to ask that changes are durable on return
//! (`O_SYNC`, `O_DSYNC`, `RWF_DSYNC`, `RWF_SYNC`, `-o sync`, `-o dirsync`, `chattr +S` and `+D`).
//!
//! ```text
//!  call returns ── mark ──► killed: all that was written is there          ─┐
//!                           cut:    nothing but what was flushed, or a part ─┴─► recovered ─► took effect?
//! ```
//!
//! Before each call, all that came before it is durable, and nothing becomes so by its age: the state that a
//! cut leaves right after the call is that of the call. On a mount without any of the ways, no call may be
//! durable: the judge can see one that is not.
//!
//! With `THROUGHLINE_SOAK=1` the kernel's ext4 answers too, shut down after each call
//! (`FS_IOC_SHUTDOWN`, without its log): what is durable there must be so here.

mod calls;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::{IFlags, OFlags};
use rustix::io::ReadWriteFlags;
use tempfile::TempDir;
use throughline::Volume;
use throughline::internal::OpenBlockDevice;
use throughline_fuse::{MountOptions, Session, Unmount, unmount};
use throughline_testing::transport::chosen;
use throughline_testing::{Cut, DiskImage, Image, Keep, Mount, Mounted, PowerDevice};
use throughline_testkit::e2fs;

use self::calls::{After, Call, Cell, Sort, calls};
use crate::mount_robust::work::root;
use crate::oracle::seeds::soak;

/// `S` and `D` of chattr(1).
const SYNC: u32 = 8;
const DIRSYNC: u32 = 0x1_0000;
const MKE2FS: &str = "-t ext4 -b 4096 -I 256";

/// A way to ask.
struct Column {
    name: &'static str,
    /// Options of the mount.
    options: &'static str,
    flags: OFlags,
    once: ReadWriteFlags,
    /// Flags of the file and the directory.
    inode: u32,
    /// The calls that are durable on return.
    durable: &'static [Sort],
}

/// `O_SYNC` and `O_DSYNC`: as in the kernel, not truncation.
const BY_DESCRIPTOR: &[Sort] = &[Sort::Write, Sort::Copy, Sort::Allocate];
/// Times may follow later.
const ALL: &[Sort] = &[
    Sort::Write,
    Sort::Copy,
    Sort::Allocate,
    Sort::Truncate,
    Sort::Owner,
    Sort::Xattr,
    Sort::Names,
];

fn columns() -> Vec<Column> {
    let plain = || Column {
        name: "nothing asked",
        options: "",
        flags: OFlags::empty(),
        once: ReadWriteFlags::empty(),
        inode: 0,
        durable: &[],
    };
    let descriptor = |name, flags| Column {
        name,
        flags,
        durable: BY_DESCRIPTOR,
        ..plain()
    };
    let call = |name, once| Column {
        name,
        once,
        durable: &[Sort::Write],
        ..plain()
    };
    // In rustix, `OFlags::DSYNC` is `O_SYNC`.
    let dsync = OFlags::from_bits_retain(0o10000);
    vec![
        plain(),
        descriptor("O_SYNC", OFlags::SYNC),
        descriptor("O_DSYNC", dsync),
        descriptor("O_DSYNC and O_DIRECT", dsync | OFlags::DIRECT),
        call("RWF_SYNC", ReadWriteFlags::SYNC),
        call("RWF_DSYNC", ReadWriteFlags::DSYNC),
        Column {
            name: "-o sync",
            options: "sync",
            durable: ALL,
            ..plain()
        },
        Column {
            name: "-o dirsync",
            options: "dirsync",
            durable: &[Sort::Names],
            ..plain()
        },
        Column {
            name: "+S",
            inode: SYNC,
            durable: ALL,
            ..plain()
        },
        Column {
            name: "+D",
            inode: DIRSYNC,
            durable: &[Sort::Names],
            ..plain()
        },
    ]
}

impl Column {
    fn prepare(&self, dir: &Path) {
        Cell::make(dir).expect("the files of a cell");
        let add = |name: &str, flags: u32| {
            let file = std::fs::File::open(dir.join(name)).expect("it opens");
            let now = rustix::fs::ioctl_getflags(&file).expect("flags");
            let flags = now | IFlags::from_bits_retain(flags);
            rustix::fs::ioctl_setflags(&file, flags).expect("flags");
        };
        if self.inode == SYNC {
            add("f", SYNC);
        }
        if self.inode != 0 {
            add("d", self.inode);
        }
    }

    /// What a call returns; the cell stays open.
    fn act(&self, call: &Call, dir: PathBuf) -> Cell {
        let cell = Cell::open(dir, self.flags, self.once).expect("the file of a cell");
        (call.act)(&cell).unwrap_or_else(|e| panic!("{}, {}: {e}", self.name, call.name));
        cell
    }
}

/// A mount of a device that may lose power, served by a thread of this process.
struct Served {
    point: PathBuf,
    serving: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Served {
    fn new(volume: &Volume, options: &MountOptions) -> Served {
        let dir = TempDir::with_prefix("throughline-durable-").expect("a directory");
        let point = dir.path().canonicalize().expect("its path");
        let session = Session::mount(volume.clone(), Path::new("memory"), &point, options);
        let session = session.expect("a mount");
        // It ends with an error: the volume has other holders.
        let serving = std::thread::spawn(move || drop(session.run()));
        Served {
            point,
            serving: Some(serving),
            _dir: dir,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if unmount(&self.point, Unmount::Plain).is_err() {
            let _ = unmount(&self.point, Unmount::Lazy);
        }
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// Whether the call took effect, according to what a crash left.
fn took_effect(state: Image, call: &Call, dir: &str) -> Result<bool, String> {
    let device = Arc::new(PowerDevice::new(state, 0));
    let volume = throughline::OpenOptions::new()
        .write(true)
        .open_block_device(device);
    let volume = volume.map_err(|error| format!("opened again: {error}"))?;
    let did = volume.root().and_then(|root| {
        let after = After { root: &root, dir };
        (call.did)(&after)
    });
    volume.close().map_err(|error| format!("closed: {error}"))?;
    did.map_err(|error| error.to_string())
}

fn dir_of(number: usize) -> String {
    format!("c{number}")
}

/// One column, on a mount with more options; what was not as the column says.
fn judge(base: &Image, column: &Column, more: &str) -> Vec<String> {
    let device = Arc::new(PowerDevice::new(base.clone(), 1));
    let mut options = MountOptions::default();
    let transport = chosen().unwrap_or_default();
    for list in [&*transport, "commit=300", column.options, more] {
        options.add(list).expect("options");
    }
    let volume = options.volume_options();
    let volume = volume.open_block_device(Arc::clone(&device) as _);
    let volume = volume.expect("a volume");
    let served = Served::new(&volume, &options);
    let calls = calls();
    for number in 0..calls.len() {
        column.prepare(&served.point.join(dir_of(number)));
    }
    let mut marks = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        rustix::fs::syncfs(std::fs::File::open(&served.point).expect("the root")).expect("a sync");
        volume.sync().expect("a sync");
        let cell = column.act(call, served.point.join(dir_of(number)));
        marks.push((device.mark(), cell));
    }
    let record = device.record();
    let mut states = record.states();
    let mut wrong = Vec::new();
    for ((number, call), (at, _)) in calls.iter().enumerate().zip(&marks) {
        let durable = column.durable.contains(&call.sort);
        let keeps: &[Keep] = match (durable, column.durable.is_empty()) {
            (true, _) => &[Keep::Nothing, Keep::Everything, Keep::Some(number as u64)],
            (false, true) => &[Keep::Nothing],
            (false, false) => &[],
        };
        for keep in keeps {
            let state = states.state(Cut {
                at: *at,
                keep: *keep,
            });
            let found = took_effect(state, call, &dir_of(number));
            if found != Ok(durable) {
                let (name, call) = (column.name, call.name);
                wrong.push(format!(
                    "{name} {more}: {call}, {keep:?}: durable {found:?}"
                ));
            }
        }
    }
    drop(marks);
    drop(served);
    wrong
}

#[test]
fn what_is_durable_on_return() {
    if !Mounted::possible() || !root("owners and flags take root") {
        return;
    }
    let Some(image) = DiskImage::make(MKE2FS, "32m") else {
        return;
    };
    let base = Image::read_file(image.path()).expect("the image");
    let mut wrong = Vec::new();
    for column in columns() {
        wrong.extend(judge(&base, &column, ""));
        // Requests that come without a handle, and writes that the kernel keeps.
        if column.durable == BY_DESCRIPTOR {
            wrong.extend(judge(&base, &column, "small_files"));
            wrong.extend(judge(&base, &column, "with=writeback_cache"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The kernel's answers: what is durable there is so in the table.
#[test]
fn what_the_kernels_ext4_makes_durable_is_in_the_table() {
    if !soak() {
        throughline_testkit::left_out!("the kernel's answers to the table of durable calls");
        return;
    }
    if !root("loop devices take root") || !throughline_testing::program::has(&["xfs_io"]) {
        return;
    }
    let calls = calls();
    for column in columns() {
        let mut found = Vec::new();
        for call in &calls {
            let Some(image) = DiskImage::make(MKE2FS, "32m") else {
                return;
            };
            let options = format!("loop,commit=300,{}", column.options);
            let mount = Mount::with_options(image.path(), options.trim_end_matches(','));
            let Ok(mount) = mount else { return };
            let dir = mount.root().join(dir_of(0));
            column.prepare(&dir);
            let top = std::fs::File::open(mount.root()).expect("the root");
            rustix::fs::syncfs(&top).expect("a sync");
            let cell = column.act(call, dir);
            let mut shutdown = e2fs::tool("xfs_io");
            shutdown.args(["-x", "-c", "shutdown"]).arg(mount.root());
            assert!(shutdown.status().expect("xfs_io").success());
            drop((cell, top));
            mount.close();
            let state = Image::read_file(image.path()).expect("the image");
            if took_effect(state, call, &dir_of(0)).expect("a sound volume") {
                assert!(
                    column.durable.contains(&call.sort),
                    "{}, {}: durable in the kernel",
                    column.name,
                    call.name
                );
                found.push(call.name);
            }
        }
        eprintln!("{}: the kernel's are {}", column.name, found.join(", "));
    }
}
