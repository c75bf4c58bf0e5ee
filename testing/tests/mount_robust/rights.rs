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

use crate::work;

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
    crate::kills::wait_for_io_of_dead_process(image.path())?;
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

#[test]
fn what_a_file_held_is_not_published_with_it() {
    if !Mounted::possible() {
        return;
    }
    // Nothing is written by age.
    let wrong = ["-t ext4", "-t ext3 -I 128"].map(|recipe| published("commit=60", recipe));
    assert!(wrong.iter().all(Result::is_ok), "{wrong:#?}");
}
