//! What a volume lies on: a base of one of several forms, and empty overlays over it.

use std::fs;
use std::path::{Path, PathBuf};

use throughline::{Format, OpenOptions};
use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, ReadAt, Store, VirtualDisk, no_objects};
use throughline_testing::Cuttable;
use throughline_testkit::{e2fs, program};

use crate::overlay_cuts::model::{self, NAMES, POOL};

/// How the base is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Raw,
    /// A qcow2 image with compressed clusters.
    Packed,
    /// A qcow2 image over a raw one.
    Chain,
}

/// Bases and their volumes: each form with each.
const FORMS: [Form; 3] = [Form::Raw, Form::Packed, Form::Chain];
/// Several groups, as a torn superblock is recognized by a backup.
const VOLUMES: [&[&str]; 2] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4", "-g", "1024"],
];
pub(crate) const GROUNDS: u64 = (FORMS.len() * VOLUMES.len()) as u64;
/// Clusters of overlays that `qemu-img` makes. Ours have 64 KiB.
const CLUSTERS: [&str; 4] = ["512", "4k", "64k", "2M"];

/// See the head of this file.
pub(crate) struct Ground {
    folder: tempfile::TempDir,
    form: Form,
    /// The files of the base, and their bytes.
    files: Vec<(PathBuf, Vec<u8>)>,
    len_bytes: u64,
}

impl Ground {
    pub(crate) fn new(number: u64) -> Ground {
        let number = (number % GROUNDS) as usize;
        let form = FORMS[number % FORMS.len()];
        let mut ground = Ground {
            folder: tempfile::tempdir().unwrap(),
            form,
            files: Vec::new(),
            len_bytes: 0,
        };
        let bottom = ground.path(if form == Form::Raw { "base" } else { "bottom" });
        e2fs::mke2fs(&bottom, "12M", VOLUMES[number / FORMS.len()]);
        let volume = options().open(&bottom).unwrap();
        for name in 0..NAMES {
            let content = model::content(name, 0);
            volume.write(model::name(name), content).unwrap();
        }
        volume.write(POOL, model::new_pool()).unwrap();
        volume.close().unwrap();
        ground.len_bytes = fs::metadata(&bottom).unwrap().len();
        let made = match form {
            Form::Raw => None,
            Form::Packed => Some("convert -c -f raw -O qcow2 -o cluster_size=4k bottom base"),
            Form::Chain => Some("create -f qcow2 -b bottom -F raw base"),
        };
        if let Some(arguments) = made {
            ground.qemu_good(arguments, "the base");
        }
        let all = ["base", "bottom"].map(|name| ground.path(name));
        let there = all.into_iter().filter(|path| path.exists());
        ground.files = there
            .map(|path| {
                let bytes = fs::read(&path).unwrap();
                (path, bytes)
            })
            .collect();
        ground
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The exit code of `qemu-img`, run in the folder, and what it prints.
    pub(crate) fn qemu(&self, arguments: &str) -> (Option<i32>, String) {
        let mut command = program::command("qemu-img");
        let ran = command.current_dir(self.folder.path());
        let ran = ran.args(arguments.split(' ')).output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        (ran.status.code(), String::from_utf8_lossy(&text).into())
    }

    /// The same, where it has to do it.
    pub(crate) fn qemu_good(&self, arguments: &str, at: &str) {
        let (code, text) = self.qemu(arguments);
        assert_eq!(code, Some(0), "{at}: qemu-img {arguments}: {text}");
    }

    /// The files that an image in the folder may name.
    pub(crate) fn backing(&self) -> Backing {
        Backing::none().allow(self.folder.path())
    }

    fn format(&self) -> Format {
        match self.form {
            Form::Raw => Format::Raw,
            Form::Packed | Form::Chain => Format::Qcow2,
        }
    }

    /// An empty overlay: ours, or one that `qemu-img` makes.
    pub(crate) fn overlay(&self, numbers: &mut fastrand::Rng) -> Cuttable {
        let store = Cuttable::default();
        let Some(cluster) = CLUSTERS.get(numbers.usize(..CLUSTERS.len() * 2)) else {
            let base = Some(("base", self.format()));
            VirtualDisk::create(&store, self.len_bytes, base).unwrap();
            return store;
        };
        let format = self.format();
        let arguments =
            format!("create -f qcow2 -o cluster_size={cluster} -b base -F {format} made");
        self.qemu_good(&arguments, "an overlay");
        holding(&fs::read(self.path("made")).unwrap())
    }

    /// The disk of an overlay that is in a store.
    pub(crate) fn disk(&self, store: &Cuttable) -> VirtualDisk {
        let base: Box<dyn ReadAt + Send + Sync> = match self.form {
            Form::Raw => Box::new(fs::File::open(self.path("base")).unwrap()),
            Form::Packed | Form::Chain => Box::new(self.open(&self.path("base"))),
        };
        VirtualDisk::in_store(Box::new(store.clone()), Some(base), true).unwrap()
    }

    fn open(&self, path: &Path) -> VirtualDisk {
        let options = DiskOptions {
            write: false,
            // Nobody writes it, and QEMU takes our lock for a writer.
            lock: LockMode::None,
            backing: self.backing(),
            objects: no_objects,
        };
        VirtualDisk::open(path, &options).unwrap()
    }

    /// No byte of the base has changed.
    pub(crate) fn assert_kept(&self, at: &str) {
        for (path, bytes) in &self.files {
            let now = fs::read(path).unwrap();
            assert!(now == *bytes, "{at}: {} has changed", path.display());
        }
    }
}

/// A store with these bytes, all of them synced.
pub(crate) fn holding(bytes: &[u8]) -> Cuttable {
    let store = Cuttable::default();
    store.write_all_at(bytes, 0).unwrap();
    store.sync().unwrap();
    store
}

/// How volumes are opened.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .cache_bytes(Some(2 << 20))
        .readahead_max(Some(0));
    options
}
