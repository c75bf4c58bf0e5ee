//! What programs see of a mounted image: with the kernel's ext4, and with our mount.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use throughline_testing::{Mount, Mounted};
use throughline_testkit::kernel::Loop;

use crate::damaged::seen::{BLOCK, MAX_BLOCKS, MAX_DIRS, MAX_FILES, Seen};

/// With the kernel, and further options.
pub(crate) fn look(image: &Path, options: &str) -> Result<Seen, String> {
    // Overrides the image's own setting: damage must not panic the machine.
    let mounted = Mount::with_options(image, &format!("loop,ro,errors=continue{options}"))?;
    let mut seen = Seen::default();
    walk(mounted.root(), &mut seen);
    mounted.close();
    Ok(seen)
}

/// With the kernel, on a copy, which it may write to replay the journal.
pub(crate) fn read_replayed(image: &Path) -> Result<Seen, String> {
    let copy = image.with_extension("replayed");
    std::fs::copy(image, &copy).map_err(|e| e.to_string())?;
    let device = Loop::new(&copy, &[]).ok_or("no loop device")?;
    let mounted = Mount::with_options(device.node().as_ref(), "ro,errors=continue");
    // The device detaches with its last user.
    device.detach();
    let (mounted, mut seen) = (mounted?, Seen::default());
    walk(mounted.root(), &mut seen);
    mounted.close();
    Ok(seen)
}

/// With our mount.
pub(crate) fn read_our_mount(image: &Path) -> Result<Seen, String> {
    let mounted =
        Mounted::start(image, "ro").or_else(|_| Mounted::start(image, "ro,norecovery"))?;
    let mut seen = Seen::default();
    walk(mounted.root(), &mut seen);
    mounted.unmount();
    Ok(seen)
}

fn walk(root: &Path, seen: &mut Seen) {
    let Ok(meta) = fs::symlink_metadata(root) else {
        return;
    };
    let (mut met, mut files) = (HashSet::from([meta.ino()]), 0);
    let mut todo: Vec<(PathBuf, u64)> = vec![(root.to_owned(), meta.ino())];
    while let Some((dir, ino)) = todo.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            // After an error the listing either continues or ends.
            let Ok(entry) = entry else { break };
            seen.add_name(ino, entry.file_name().as_bytes());
            let path = entry.path();
            let meta = match fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(error) => {
                    let name = entry.file_name().as_bytes().to_vec();
                    seen.unknown.insert((ino, name), error.to_string());
                    continue;
                }
            };
            if !met.insert(meta.ino()) || entry.ino() != meta.ino() {
                continue;
            }
            if meta.is_dir() && met.len() < MAX_DIRS * 100 {
                todo.push((path, meta.ino()));
            } else if meta.is_file() && files < MAX_FILES {
                files += 1;
                read(&path, &meta, seen);
            }
        }
    }
}

fn read(path: &Path, meta: &fs::Metadata, seen: &mut Seen) {
    let Ok(file) = File::open(path) else { return };
    let mut bytes = vec![0; BLOCK];
    for at in 0..meta.len().div_ceil(BLOCK as u64).min(MAX_BLOCKS) {
        let start = at * BLOCK as u64;
        let len = (meta.len() - start).min(BLOCK as u64) as usize;
        if file.read_exact_at(&mut bytes[..len], start).is_ok() {
            seen.add_block(meta.ino(), at, &bytes[..len]);
        }
    }
}
