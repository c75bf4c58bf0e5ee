//! Volumes whose journal is on another device: written by us and by the kernel, cut off and recovered by the
//! other one; and journals that do not belong to the volume.

use std::fs;
use std::path::{Path, PathBuf};

use throughline::{Error, OpenOptions, Volume, VolumeOptions};
use throughline_testkit::kernel::{self, Loop};
use throughline_testkit::{e2fs, program};

use crate::matrix::tool;

/// A volume and its journal.
struct Pair {
    dir: tempfile::TempDir,
    image: PathBuf,
    journal: PathBuf,
}

impl Pair {
    /// Makes both, with blocks of this size; `None` if that is not possible here.
    fn make(block: &str, features: &str) -> Option<Self> {
        if !tool::has_tools() || !crate::matrix::kernel::may_mount() {
            return None;
        }
        let pair = Self::empty();
        make_journal(&pair.journal, block, JOURNAL_UUID)?;
        // mke2fs takes block devices only.
        let device = Loop::new(&pair.journal, &[])?;
        let place = format!("device={}", device.node());
        let args = ["-t", "ext4", "-b", block, "-O", features, "-J", &place];
        let made = e2fs::mke2fs_if_supported(&pair.image, "64M", &args);
        // What mke2fs wrote to the device is in the file before that is read.
        let node = fs::File::open(device.node()).expect("the device");
        node.sync_all().expect("written");
        made.then_some(pair)
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a place for temporary files");
        let [image, journal] = ["image", "journal"].map(|name| dir.path().join(name));
        Self {
            dir,
            image,
            journal,
        }
    }

    /// What is on both devices now.
    fn copy(&self) -> Self {
        let copy = Self::empty();
        // The journal first: the volume is then not older than the journal's tail.
        fs::copy(&self.journal, &copy.journal).expect("copied");
        fs::copy(&self.image, &copy.image).expect("copied");
        copy
    }

    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let read = |path: &Path| fs::read(path).expect("it is read");
        (read(&self.image), read(&self.journal))
    }

    fn options(&self, write: bool) -> OpenOptions {
        let mut options = OpenOptions::new();
        options
            .write(write)
            .volume(VolumeOptions::new().journal(Some(self.journal.clone())));
        options
    }

    fn open(&self, write: bool) -> throughline::Result<Volume> {
        self.options(write).open(&self.image)
    }

    /// Asserts that e2fsck finds nothing.
    #[track_caller]
    fn check(&self, when: &str) {
        let mut check = e2fs::tool("e2fsck");
        check
            .args(["-fn", "-j"])
            .arg(&self.journal)
            .arg(&self.image);
        let ran = program::run(&mut check, e2fs::LIMIT);
        assert!(ran.status.success(), "{when}: {}", ran.text());
    }

    /// Mounts it by the kernel, with its journal.
    fn mount(&self) -> Option<KernelMount> {
        let journal = Loop::new(&self.journal, &[])?;
        let point = self.dir.path().join("point");
        let _ = fs::create_dir(&point);
        let options = format!("loop,journal_path={}", journal.node());
        let mount = kernel::Mount::or_skip(&self.image, &point, &["-t", "ext4", "-o", &options])?;
        Some(KernelMount {
            mount,
            _journal: journal,
        })
    }
}

/// Fields are dropped in this order.
struct KernelMount {
    mount: kernel::Mount,
    _journal: Loop,
}

const JOURNAL_UUID: &str = "0a1b2c3d-0000-4000-8000-000000000001";
const OTHER_UUID: &str = "0a1b2c3d-0000-4000-8000-000000000002";

fn make_journal(path: &Path, block: &str, uuid: &str) -> Option<()> {
    let args = ["-b", block, "-O", "journal_dev", "-U", uuid];
    e2fs::mke2fs_if_supported(path, "16M", &args).then_some(())
}

/// Files in a directory: their names, and what they hold.
fn content(at: usize) -> (String, Vec<u8>) {
    (format!("file{at}"), vec![at as u8; 100 + at * 37])
}

const FILES: usize = 200;

fn write_ours(volume: &Volume, from: usize) {
    for at in from..from + FILES {
        let (name, data) = content(at);
        volume.write(format!("/{name}"), &data).expect("written");
    }
    for at in (from..from + FILES).step_by(3) {
        volume
            .remove_file(format!("/{}", content(at).0))
            .expect("removed");
    }
}

fn write_theirs(root: &Path, from: usize) {
    for at in from..from + FILES {
        let (name, data) = content(at);
        fs::write(root.join(name), data).expect("written");
    }
    for at in (from..from + FILES).step_by(3) {
        fs::remove_file(root.join(content(at).0)).expect("removed");
    }
}

fn assert_ours(volume: &Volume, from: usize) {
    for at in from..from + FILES {
        let (name, data) = content(at);
        let found = volume.read(format!("/{name}")).ok();
        assert_eq!(
            found,
            (!(at - from).is_multiple_of(3)).then_some(data),
            "{name}"
        );
    }
}

fn assert_theirs(root: &Path, from: usize) {
    for at in from..from + FILES {
        let (name, data) = content(at);
        let found = fs::read(root.join(&name)).ok();
        assert_eq!(
            found,
            (!(at - from).is_multiple_of(3)).then_some(data),
            "{name}"
        );
    }
}

fn refused(result: throughline::Result<Volume>, words: &str) {
    let Err(error) = result else {
        panic!("not refused: {words}");
    };
    assert!(error.to_string().contains(words), "{error}: {words}");
}

/// Us and the kernel in turn; each is cut off once and recovered by the other one.
fn in_turn(block: &str, features: &str) {
    let Some(pair) = Pair::make(block, features) else {
        return;
    };
    let what = format!("-b {block} -O {features}");
    // Without the journal, a closed volume is read, and not written.
    let before = pair.bytes();
    let volume = OpenOptions::new().open(&pair.image).expect("it is closed");
    assert!(!volume.exists("/file1").expect("it can be read"));
    volume.close().expect("closed");
    refused(
        OpenOptions::new().write(true).open(&pair.image),
        "--journal PATH",
    );
    assert!(pair.bytes() == before, "{what}: nothing was written");
    // We write, and are cut off.
    let volume = pair.open(true).expect("it opens");
    refused(pair.open(true), "is in use by this process");
    write_ours(&volume, 0);
    volume.sync().expect("durable");
    let cut = pair.copy();
    volume.close().expect("closed");
    pair.check(&format!("{what}: closed by us"));
    refused(OpenOptions::new().open(&cut.image), "journal_path=PATH");
    let Some(kernel) = cut.mount() else { return };
    assert_theirs(kernel.mount.point(), 0);
    // The kernel writes, and is cut off.
    write_theirs(kernel.mount.point(), FILES);
    let point = fs::File::open(kernel.mount.point()).expect("it opens");
    rustix::fs::syncfs(&point).expect("durable");
    drop(point);
    let cut_again = cut.copy();
    drop(kernel);
    cut.check(&format!("{what}: recovered and closed by the kernel"));
    // It is shown as recovered, and not changed; then recovered.
    let before = cut_again.bytes();
    let volume = cut_again.open(false).expect("it is shown");
    assert_ours(&volume, 0);
    assert_ours(&volume, FILES);
    volume.close().expect("closed");
    assert!(cut_again.bytes() == before, "{what}: nothing was written");
    refused(
        OpenOptions::new().open(&cut_again.image),
        "journal_path=PATH",
    );
    let volume = cut_again.open(true).expect("it is recovered");
    assert!(
        volume.recovery().replayed.is_some(),
        "{what}: nothing to recover"
    );
    assert_ours(&volume, FILES);
    write_ours(&volume, 2 * FILES);
    volume.close().expect("closed");
    cut_again.check(&format!("{what}: recovered and closed by us"));
    let kernel = cut_again.mount().expect("the kernel mounts it again");
    for from in [0, FILES, 2 * FILES] {
        assert_theirs(kernel.mount.point(), from);
    }
    drop(kernel);
    cut_again.check(&format!("{what}: at the end"));
}

#[test]
fn an_external_journal_of_1k_blocks() {
    in_turn("1024", "64bit,metadata_csum");
}

#[test]
fn an_external_journal_of_4k_blocks() {
    in_turn("4096", "^64bit,^metadata_csum");
}

#[test]
fn journals_that_do_not_belong_to_the_volume_are_refused() {
    let Some(pair) = Pair::make("1024", "extent") else {
        return;
    };
    let before = pair.bytes();
    let with = |journal: &Path| {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .volume(VolumeOptions::new().journal(Some(journal.to_owned())));
        options.open(&pair.image)
    };
    let other = pair.dir.path().join("other");
    make_journal(&other, "1024", OTHER_UUID).expect("made");
    refused(with(&other), "of another volume");
    make_journal(&other, "4096", JOURNAL_UUID).expect("made");
    refused(with(&other), "blocks of another size");
    fs::write(&other, vec![0; 1 << 20]).expect("written");
    refused(with(&other), "holds no external journal");
    refused(with(&pair.image), "is in use by this process");
    let missing = pair.dir.path().join("missing");
    assert!(matches!(with(&missing), Err(Error::Open { .. })));
    // Of this volume, but the volume is not among its users.
    let mut bytes = before.1.clone();
    bytes[2048 + 0x40..2048 + 0x44].fill(0);
    fs::write(&other, &bytes).expect("written");
    refused(with(&other), "among its users");
    // Cut short.
    fs::write(&other, &before.1[..1 << 20]).expect("written");
    assert!(matches!(with(&other), Err(Error::Corrupt(_))));
    assert!(pair.bytes() == before, "nothing was written");
    // The UUID by which the journal knows it stays.
    let volume = pair.open(true).expect("it opens");
    let renamed = volume.set_uuid([7; 16]);
    assert!(matches!(renamed, Err(Error::Unsupported(_))), "{renamed:?}");
    volume.set_label(b"label").expect("changed");
    volume.close().expect("closed");
    pair.check("with another label");
}
