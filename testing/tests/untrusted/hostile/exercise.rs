//! Operations on an untrusted image: reads all of it, then changes it in every way. Errors are allowed; a
//! panic, a hang or unbounded memory is not.

use std::ffi::OsString;
use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{
    Attributes, Dir, DirEntry, Fallocate, File, FileType, NewNode, OpenOptions, RenameMode, Volume,
};
use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice, Op, Segment, scope};
use throughline_ext::Fs;

/// Most names that a walk visits: with a cycle of directories it would never end.
const MAX_NAMES: usize = 700;
/// Deepest directory that is entered.
const MAX_LEVELS: usize = 12;
/// Number of files whose contents are read and changed.
const MAX_FILES: usize = 60;

/// A device in memory that holds `bytes`, then `more` zeros. Zeros take no memory.
pub(crate) fn load(bytes: &[u8], more: u64) -> Arc<dyn BlockDevice> {
    const PIECE: usize = 64 << 10;
    let zeros = vec![0; PIECE];
    let device = MemoryDevice::new(bytes.len() as u64 + more);
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (index, piece) in bytes[..bytes.len() & !511].chunks(PIECE).enumerate() {
            // Compared as a whole: a fuzzer counts every comparison of a byte.
            if piece != &zeros[..piece.len()] {
                scope.submit(
                    0,
                    Op::Write,
                    (index * PIECE) as u64,
                    [Segment::Write(piece)],
                    false,
                );
                scope.reap(1, &mut done);
            }
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    Arc::new(device)
}

/// How far an image got.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reached {
    pub(crate) opened: bool,
    pub(crate) names: usize,
    pub(crate) writable: bool,
    pub(crate) changes: usize,
}

/// Runs all operations on one image.
pub(crate) fn exercise(bytes: &[u8]) -> Reached {
    let device = load(bytes, 0);
    let mut reached = Reached::default();
    if let Ok(volume) = OpenOptions::new().open_block_device(Arc::clone(&device)) {
        reached.opened = true;
        reached.names = read_all(&volume);
        let _ = volume.close();
    }
    read_attributes(&device);
    for unclean in [false, true] {
        let mut options = OpenOptions::new();
        options.write(true);
        if let Ok(volume) = options
            .allow_unclean(unclean)
            .open_block_device(Arc::clone(&device))
        {
            reached.writable = true;
            reached.changes = change_all(&volume);
            let _ = volume.close();
            break;
        }
    }
    if reached.writable
        && let Ok(volume) = OpenOptions::new().open_block_device(device)
    {
        read_all(&volume);
    }
    reached
}

/// Calls `visit` with each directory and name, for at most [`MAX_NAMES`] names. Returns the number of
/// names.
fn walk(root: Dir, mut visit: impl FnMut(&Dir, &DirEntry)) -> usize {
    let (mut names, mut dirs) = (0, vec![(root, 0)]);
    while let Some((dir, level)) = dirs.pop() {
        let Ok(entries) = dir.entries() else { continue };
        for entry in entries.map_while(Result::ok) {
            names += 1;
            if names > MAX_NAMES {
                return names;
            }
            visit(&dir, &entry);
            if level < MAX_LEVELS
                && let Ok(next) = dir.open_dir(entry.file_name())
            {
                dirs.push((next, level + 1));
            }
        }
    }
    names
}

pub(crate) fn read_all(volume: &Volume) -> usize {
    let _ = (volume.info(), volume.stat_fs());
    for path in [
        "/few/sub/deep/leaf",
        "/short",
        "/long",
        "/many/none",
        "/few/small/x",
        "/pieces",
    ] {
        let _ = (
            volume.metadata(path),
            volume.symlink_metadata(path),
            volume.read_link(path),
        );
        let _ = volume.open_dir(path).map(|dir| dir.metadata("."));
    }
    let Ok(root) = volume.root() else { return 0 };
    let mut files = 0;
    walk(root, |dir, entry| {
        let name = entry.file_name();
        let _ = (dir.metadata(&name), dir.read_link(&name));
        let Ok(metadata) = dir.symlink_metadata(&name) else {
            return;
        };
        if metadata.file_type() == FileType::File && files < MAX_FILES {
            files += 1;
            let _ = dir
                .open_file(name)
                .map(|file| read_file(&file, metadata.len()));
        }
    })
}

/// Reads a file at its start, its end and elsewhere, and looks for its data: it may claim to have 2^60
/// bytes.
fn read_file(file: &File, size: u64) {
    let mut buf = vec![0; 128 << 10];
    for at in [
        0,
        70_001,
        1 << 32,
        size / 2,
        size.saturating_sub(1000),
        u64::MAX - 10,
    ] {
        let _ = file.read_at(&mut buf, at);
    }
    let mut at = 0;
    for _ in 0..48 {
        let Ok(Some(data)) = file.seek_data(at) else {
            break;
        };
        let _ = file.read_at(&mut buf[..1500], data);
        let Ok(Some(hole)) = file.seek_hole(data) else {
            break;
        };
        at = hole;
    }
    for at in [size / 2, size.saturating_sub(1), 1 << 40] {
        let _ = (file.seek_data(at), file.seek_hole(at));
    }
}

fn read_attributes(device: &Arc<dyn BlockDevice>) {
    let Ok(disk) = Disk::new(Arc::clone(device)) else {
        return;
    };
    let Ok(fs) = Fs::open(Arc::new(disk), &throughline_ext::OpenOptions::default()) else {
        return;
    };
    let _ = fs.check_counts();
    let Ok(root) = fs.root() else { return };
    let mut dirs = vec![root];
    for _ in 0..8 {
        let Some(dir) = dirs.pop() else { return };
        for entry in fs.read_dir(&dir).take(40).map_while(Result::ok) {
            let Ok(inode) = fs.lookup(&dir, &entry.name) else {
                continue;
            };
            for name in fs.list_xattrs(&inode).unwrap_or_default().iter().take(20) {
                let _ = fs.get_xattr(&inode, name);
            }
            if inode.is_dir() {
                dirs.push(inode);
            }
        }
    }
}

pub(crate) const MODES: [Fallocate; 7] = [
    Fallocate::Allocate,
    Fallocate::KeepSize,
    Fallocate::PunchHole,
    Fallocate::ZeroRange,
    Fallocate::ZeroRangeKeepSize,
    Fallocate::Collapse,
    Fallocate::Insert,
];

fn change_all(volume: &Volume) -> usize {
    let mut changes = 0;
    let mut did = |done: bool| changes += usize::from(done);
    did(volume.create_dir("/made").is_ok());
    for n in 0..20 {
        for dir in ["", "/made", "/many", "/few", "/inline", "/few/sub/deep"] {
            let path = format!("{dir}/new-{n:040}");
            did(volume
                .create_file(path)
                .is_ok_and(|file| file.write_at(&[1; 900], n * 777).is_ok()));
        }
    }
    did(volume.symlink("x".repeat(200), "/made/link").is_ok());
    did(volume
        .make_node("/made/pipe", NewNode::Fifo, &Attributes::new())
        .is_ok());
    did(volume.hard_link("/few/small", "/made/hard").is_ok());
    did(volume.rename("/few/sub", "/made/sub").is_ok());
    did(volume
        .rename_with("/made", "/many/made", RenameMode::NoReplace)
        .is_ok());
    did(volume
        .rename_with("/plain", "/far", RenameMode::Exchange)
        .is_ok());
    did(volume
        .rename("/many/made", "/many/made/sub/below itself")
        .is_ok());
    if let Ok(root) = volume.root() {
        let mut files = 0;
        walk(root, |dir, entry| {
            if files < MAX_FILES
                && let Ok(file) = dir.open_file(entry.file_name())
            {
                files += 1;
                did(change_file(&file, files));
            }
        });
    }
    did(volume.sync().is_ok());
    if let Ok(root) = volume.root() {
        did(remove_all(root) > 0);
    }
    let _ = (volume.sync(), volume.info(), volume.stat_fs());
    changes
}

fn change_file(file: &File, turn: usize) -> bool {
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let _ = file.set_attributes(&Attributes::new().mode(0o600).uid(70_000));
    let _ = file.allocate(MODES[turn % MODES.len()], 4096, 16 << 10);
    let _ = file.allocate(Fallocate::PunchHole, (size / 2) & !4095, 1 << 20);
    let wrote = file.write_at(&[5; 5000], 0).is_ok();
    let _ = file.write_at(&[6; 2500], size.saturating_sub(3));
    let _ = file.write_at(&[7; 70_000], 300_000);
    let _ = file.append(b"more");
    let _ = file.sync_all();
    let _ = file.set_len(match turn % 5 {
        0 => 0,
        1 => size / 2,
        2 => size.saturating_add(1 << 20),
        3 => 1,
        _ => 400_000,
    });
    wrote
}

/// Removes everything, as `rm -r` does, the names found last first.
fn remove_all(root: Dir) -> usize {
    let (mut removed, mut left): (usize, Vec<(Dir, Vec<OsString>)>) = (0, Vec::new());
    walk(root, |dir, entry| {
        let name = entry.file_name();
        match left.last_mut() {
            Some((last, names)) if same(last, dir) => names.push(name),
            _ => left.extend(dir.open_dir(".").map(|dir| (dir, vec![name]))),
        }
    });
    for (dir, names) in left.into_iter().rev() {
        for name in names {
            removed += usize::from(dir.remove_file(&name).is_ok() || dir.remove_dir(&name).is_ok());
        }
    }
    removed
}

fn same(one: &Dir, other: &Dir) -> bool {
    let number = |dir: &Dir| dir.metadata(".").map(|metadata| metadata.ino()).ok();
    number(one).is_some() && number(one) == number(other)
}
