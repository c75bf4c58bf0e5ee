//! Private files are rewritten and then published, without a sync of their own; another program's fsync
//! commits what there is, and the server is killed. What a file held before must never be there under its new
//! mode, owner, access list or place, and neither may it be empty.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, XattrFlags, fgetxattr, fsetxattr, renameat_with};
use throughline_testing::attributes::{NAMES, value};
use throughline_testing::{DiskImage, Mounted};

use crate::mount_robust::work;

const LIST: &str = "system.posix_acl_access";
/// The file that the last case exchanges with.
const DECOY: &str = "decoy";
/// The file that is synced after its publication.
const SYNCED: &str = "synced";

/// A way to publish a file.
struct Way {
    name: &'static str,
    /// Before the file is written, as some editors do; otherwise after that, before it is closed.
    early: bool,
    publish: fn(&File, &Path, &Path) -> io::Result<()>,
}

const fn way(
    name: &'static str,
    early: bool,
    publish: fn(&File, &Path, &Path) -> io::Result<()>,
) -> Way {
    Way {
        name,
        early,
        publish,
    }
}

const WAYS: [Way; 13] = [
    way(SYNCED, true, |file, _, _| mode(file)),
    way("chmod", false, |file, _, _| mode(file)),
    way("chmod-early", true, |file, _, _| mode(file)),
    way("chown", false, |file, _, _| owner(file)),
    way("chown-early", true, |file, _, _| owner(file)),
    way("list", false, |file, _, _| list(file)),
    way("list-early", true, |file, _, _| list(file)),
    way("list-in-block", false, |file, _, _| {
        long(file).and_then(|()| list(file))
    }),
    way("list-in-block-early", true, |file, _, _| {
        long(file).and_then(|()| list(file))
    }),
    way("place", false, |_, from, to| fs::rename(from, to)),
    way("name", false, |_, from, to| {
        fs::rename(from, to.with_file_name("other"))
    }),
    way("link", false, |_, from, to| fs::hard_link(from, to)),
    way("exchange", false, |_, from, to| {
        let decoy = to.with_file_name(DECOY);
        Ok(renameat_with(CWD, from, CWD, decoy, RenameFlags::EXCHANGE)?)
    }),
];

fn mode(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o644))
}

fn owner(file: &File) -> io::Result<()> {
    fchown(file, Some(65_534), Some(65_534))
}

fn list(file: &File) -> io::Result<()> {
    Ok(fsetxattr(
        file,
        LIST,
        &value(NAMES.len() as u8 - 1, 1),
        XattrFlags::empty(),
    )?)
}

/// Fills the inode's body, so that the access list goes into a block.
fn long(file: &File) -> io::Result<()> {
    Ok(fsetxattr(
        file,
        "user.long",
        &[b'x'; 80],
        XattrFlags::empty(),
    )?)
}

fn content(is_new: bool) -> Vec<u8> {
    match is_new {
        true => b"public\n".repeat(900),
        false => b"SECRET\n".repeat(1000),
    }
}

/// A new file that only root may read.
fn private(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(&content(false))?;
    file.sync_all()
}

/// Ways to publish a directory, and with it a file below. `to` is a free name beside it, of which the parent
/// has a directory with another name.
type Published = fn(&Path, &Path) -> io::Result<()>;

const DIRECTORIES: [(&str, Published); 6] = [
    ("dir-chmod", |dir, _| {
        fs::set_permissions(dir, Permissions::from_mode(0o755))
    }),
    ("dir-chown", |dir, _| {
        std::os::unix::fs::chown(dir, Some(65_534), Some(65_534))
    }),
    ("dir-list", |dir, _| list(&File::open(dir)?)),
    ("dir-name", |dir, to| fs::rename(dir, to)),
    ("dir-place", |dir, to| {
        fs::rename(dir, to.with_file_name("public").join(NESTED))
    }),
    ("dir-exchange", |dir, to| {
        let decoy = to.with_file_name("decoys");
        Ok(renameat_with(CWD, dir, CWD, decoy, RenameFlags::EXCHANGE)?)
    }),
];
/// The directory in `public` for [`DIRECTORIES`].
const NESTED: &str = "nested";
/// The private file of a directory.
const BELOW: &str = "below";

/// Rewrites the file of a directory, and publishes the directory while the file is still open, or after its
/// program has closed it, of which the server may learn later.
fn publish_directory(
    root: &Path,
    (name, publish): (&str, Published),
    is_open: bool,
) -> io::Result<()> {
    let dir = root.join(name);
    let mut file = File::create(dir.join(BELOW))?;
    file.write_all(&content(true))?;
    let open = is_open.then_some(file);
    publish(&dir, &root.join("shown"))?;
    drop(open);
    Ok(())
}

/// Whether a directory's file has the new content, or the old one and nobody else may reach it.
fn judge_directory(root: &Path, dir: &Path) -> Result<(), String> {
    let named = |what: String| format!("{}: {what}", dir.display());
    let found = fs::read(dir.join(BELOW)).map_err(|error| named(error.to_string()))?;
    let about = fs::metadata(dir).map_err(|error| named(error.to_string()))?;
    let has_list =
        File::open(dir).is_ok_and(|dir| fgetxattr(dir, LIST, &mut [0u8; 256][..]).is_ok());
    let is_at_home = DIRECTORIES.iter().any(|(name, _)| dir == root.join(name));
    let is_private = is_at_home && about.mode() & 0o7777 == 0o700 && about.uid() == 0 && !has_list;
    match found == content(true) || found == content(false) && is_private {
        true => Ok(()),
        false => Err(named(format!("{} bytes, {:o}", found.len(), about.mode()))),
    }
}

fn rewrite(root: &Path, way: &Way) -> io::Result<()> {
    let (from, to) = (root.join(way.name), root.join("public").join(way.name));
    let mut file = File::create(&from)?;
    if way.early {
        (way.publish)(&file, &from, &to)?;
    }
    file.write_all(&content(true))?;
    if !way.early {
        (way.publish)(&file, &from, &to)?;
    }
    match way.name {
        SYNCED => file.sync_all(),
        _ => Ok(()),
    }
}

/// Whether what is at a path is the old content and the old rights, or the new content.
fn judge(root: &Path, path: &Path) -> Result<(), String> {
    let named = |what: &str| format!("{}: {what}", path.display());
    let found = fs::read(path).map_err(|error| named(&error.to_string()))?;
    let file = File::open(path).map_err(|error| named(&error.to_string()))?;
    let about = file.metadata().map_err(|error| named(&error.to_string()))?;
    let is_late = path.ends_with(SYNCED) && about.mode() & 0o7777 != 0o644;
    if found == content(true) && !is_late {
        return Ok(());
    }
    if found != content(false) {
        return Err(named(&format!("{} bytes, {:o}", found.len(), about.mode())));
    }
    let has_list = fgetxattr(&file, LIST, &mut [0u8; 256][..]).is_ok();
    let is_private = about.mode() & 0o7777 == 0o600 && about.uid() == 0 && !has_list;
    match is_private && path.parent() == Some(root) && !path.ends_with(SYNCED) {
        true => Ok(()),
        false => Err(named(&format!(
            "the secret, {:o}, {}",
            about.mode(),
            about.uid()
        ))),
    }
}

fn published(options: &str, recipe: &str) -> Result<(), String> {
    let image = DiskImage::make(recipe, "64M").ok_or("no image")?;
    let mut mounted = Mounted::start(image.path(), options)?;
    let root = mounted.root().to_owned();
    let work = || -> io::Result<()> {
        fs::create_dir(root.join("public"))?;
        WAYS.iter()
            .try_for_each(|way| private(&root.join(way.name)))?;
        fs::write(root.join("public").join(DECOY), content(true))?;
        File::open(root.join("public").join(DECOY))?.sync_all()?;
        WAYS.iter().try_for_each(|way| rewrite(&root, way))?;
        File::create(root.join("log"))?.sync_all()
    };
    work().map_err(|error| format!("{error}: {}", mounted.log()))?;
    mounted.kill();
    drop(mounted);
    crate::mount_robust::kills::wait_for_io_of_dead_process(image.path())?;
    let mounted = Mounted::start(image.path(), "")?;
    let root = mounted.root();
    let mut wrong = Vec::new();
    for dir in [root.to_owned(), root.join("public")] {
        for entry in fs::read_dir(&dir)
            .map_err(|error| error.to_string())?
            .flatten()
        {
            let is_log = entry.file_name() == "log";
            if entry.file_type().is_ok_and(|kind| kind.is_file()) && !is_log {
                wrong.extend(judge(root, &entry.path()).err());
            }
        }
    }
    mounted.unmount();
    work::e2fsck(image.path())?;
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{wrong:#?}")),
    }
}

fn directory_published(
    (options, recipe): (&str, &str),
    way: (&str, Published),
    is_open: bool,
) -> Result<(), String> {
    let image = DiskImage::make(recipe, "16M").ok_or("no image")?;
    let mut mounted = Mounted::start(image.path(), options)?;
    let root = mounted.root().to_owned();
    let work = || -> io::Result<()> {
        for dir in [way.0, "decoys", "public"].map(|name| root.join(name)) {
            fs::create_dir(&dir)?;
            fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
        }
        private(&root.join(way.0).join(BELOW))?;
        File::open(&root)?.sync_all()?;
        publish_directory(&root, way, is_open)?;
        File::create(root.join("log"))?.sync_all()
    };
    work().map_err(|error| format!("{error}: {}", mounted.log()))?;
    mounted.kill();
    drop(mounted);
    crate::mount_robust::kills::wait_for_io_of_dead_process(image.path())?;
    let mounted = Mounted::start(image.path(), "")?;
    let root = mounted.root();
    let places = [way.0, "shown", "decoys", "public/nested"].map(|name| root.join(name));
    let there = places.iter().filter(|dir| dir.join(BELOW).exists());
    let judged: Vec<_> = there.map(|dir| judge_directory(root, dir)).collect();
    mounted.unmount();
    work::e2fsck(image.path())?;
    let [judged] = &judged[..] else {
        return Err(format!("the file is in {} places", judged.len()));
    };
    let named = |what: &String| format!("{options} {}, open: {is_open}: {what}", way.0);
    judged.as_ref().map_err(named).copied()
}

/// A directory is not published while the disk shows what a file below it held, whether the server knows
/// already that the file was closed, or is told only later (over io_uring) or never (`small_files`).
#[test]
fn what_a_file_held_is_not_published_with_its_directory() {
    if !Mounted::possible() {
        return;
    }
    let mut wrong = Vec::new();
    for options in ["commit=60", "commit=60,small_files"] {
        for way in DIRECTORIES {
            for is_open in [false, true] {
                wrong.extend(directory_published((options, "-t ext4"), way, is_open).err());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_a_file_held_is_not_published_with_it() {
    if !Mounted::possible() {
        return;
    }
    // Nothing is written by age.
    let wrong = ["-t ext4", "-t ext3 -I 128"].map(|recipe| published("commit=60", recipe));
    assert!(wrong.iter().all(Result::is_ok), "{wrong:#?}");
}
