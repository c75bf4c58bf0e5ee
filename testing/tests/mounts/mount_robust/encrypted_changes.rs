//! Changes of a volume with encrypted directories, without their key: names can be removed, attributes set,
//! and nothing else. Every call must have the result that it has on the kernel's mount of the same image.

use std::path::{Path, PathBuf};

use nix::unistd::truncate;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    Uid, XattrFlags,
};
use throughline_testing::{Mount, Mounted};

use crate::mount_robust::encrypted::{image, tree};
use crate::mount_robust::work::e2fsck;

/// Calls on one mount, and their results: `Ok`, or the error number.
struct Calls<'a> {
    root: &'a Path,
    results: Vec<(String, Result<(), i32>)>,
}

impl Calls<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn note<T>(&mut self, call: String, result: rustix::io::Result<T>) {
        let result = result.map(drop).map_err(|error| error.raw_os_error());
        self.results.push((call, result));
    }

    fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) {
        let done = rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags);
        self.note(format!("rename {from} {to} {flags:?}"), done);
    }

    fn open(&mut self, path: &str, flags: OFlags) {
        let done = rustix::fs::open(self.at(path), flags, Mode::from_raw_mode(0o600));
        self.note(format!("open {path} {flags:?}"), done);
    }

    fn link(&mut self, from: &str, to: &str) {
        let done = rustix::fs::link(self.at(from), self.at(to));
        self.note(format!("link {from} {to}"), done);
    }

    fn unlink(&mut self, path: &str, flags: AtFlags) {
        let done = rustix::fs::unlinkat(CWD, self.at(path), flags);
        self.note(format!("unlink {path} {flags:?}"), done);
    }

    /// Every way to make `path`, which cannot succeed.
    fn make(&mut self, path: &str) {
        let (at, mode) = (self.at(path), Mode::from_raw_mode(0o700));
        self.note(format!("mkdir {path}"), rustix::fs::mkdir(&at, mode));
        self.note(format!("symlink {path}"), rustix::fs::symlink("to", &at));
        let fifo = rustix::fs::mknodat(CWD, &at, FileType::Fifo, mode, 0);
        self.note(format!("mknod {path}"), fifo);
        for exclusive in [OFlags::empty(), OFlags::EXCL] {
            self.open(path, OFlags::RDWR | OFlags::CREATE | exclusive);
        }
        self.link("plain", path);
        for flags in [RenameFlags::empty(), RenameFlags::NOREPLACE] {
            self.rename("plain", path, flags);
        }
    }

    /// Calls that change the contents of a file, and its attributes.
    fn change(&mut self, path: &str) {
        for flags in [
            OFlags::RDONLY,
            OFlags::WRONLY,
            OFlags::RDWR | OFlags::TRUNC,
            OFlags::PATH,
        ] {
            self.open(path, flags);
        }
        let at = self.at(path);
        for len in [0, 3, 5000] {
            let done =
                truncate(&at, len).map_err(|e| rustix::io::Errno::from_raw_os_error(e as i32));
            self.note(format!("truncate {path} {len}"), done);
        }
        let mode = Mode::from_raw_mode(0o640);
        self.note(format!("chmod {path}"), rustix::fs::chmod(&at, mode));
        let owner = (Some(Uid::from_raw(1)), Some(Gid::from_raw(2)));
        let done = rustix::fs::chown(&at, owner.0, owner.1);
        self.note(format!("chown {path}"), done);
        let time = Timespec {
            tv_sec: 1000,
            tv_nsec: 7,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let done = rustix::fs::utimensat(CWD, &at, &times, AtFlags::empty());
        self.note(format!("utimes {path}"), done);
        let done = rustix::fs::setxattr(&at, "user.a", b"value", XattrFlags::empty());
        self.note(format!("setxattr {path}"), done);
    }
}

/// The names of a directory for which `is_wanted`, sorted.
fn names(dir: &Path, is_wanted: impl Fn(&std::fs::FileType) -> bool) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .expect("it is listed")
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| is_wanted(&entry.file_type().expect("a type")))
        .map(|entry| entry.file_name().into_string().expect("base64"))
        .collect();
    names.sort_unstable();
    names
}

/// The same calls on any mount of the image.
fn calls(root: &Path) -> Vec<(String, Result<(), i32>)> {
    let mut calls = Calls {
        root,
        results: Vec::new(),
    };
    let files = names(&root.join("one"), |kind| kind.is_file());
    let [a, b, c] = [0, 1, 2].map(|at| format!("one/{}", files[at]));
    let below = format!("one/{}", names(&root.join("one"), |kind| kind.is_dir())[0]);
    std::fs::write(root.join("plain"), "plain").expect("an ordinary file");
    std::fs::create_dir(root.join("dir")).expect("an ordinary directory");
    for path in [
        "one/new",
        "one/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        &a,
        &below,
    ] {
        calls.make(path);
    }
    let whiteout = RenameFlags::WHITEOUT;
    for (from, to) in [
        (&a, &b),
        (&a, &a),
        (&a, &"out".to_owned()),
        (&a, &"plain".to_owned()),
        (&below, &"dir/below".to_owned()),
        (&"one/none".to_owned(), &"out".to_owned()),
    ] {
        for flags in [
            RenameFlags::empty(),
            RenameFlags::NOREPLACE,
            RenameFlags::EXCHANGE,
            whiteout,
        ] {
            calls.rename(from, to, flags);
        }
    }
    calls.rename("one", "other", RenameFlags::empty());
    calls.rename("other", "one", RenameFlags::empty());
    calls.open("one", OFlags::RDWR | OFlags::TMPFILE);
    calls.link(&a, "linked");
    calls.link(&a, "one/linked");
    for path in [&a, "linked"] {
        calls.change(path);
    }
    calls.unlink(&b, AtFlags::empty());
    calls.unlink(&b, AtFlags::empty());
    calls.unlink(&c, AtFlags::REMOVEDIR);
    calls.unlink(&below, AtFlags::empty());
    calls.unlink(&below, AtFlags::REMOVEDIR);
    calls.unlink("one/none", AtFlags::empty());
    let inside = names(&root.join(&below), |_| true);
    calls.unlink(&format!("{below}/{}", inside[0]), AtFlags::empty());
    calls.unlink(&below, AtFlags::REMOVEDIR);
    // Names whose form holds only a part of them.
    for name in names(&root.join("large"), |kind| kind.is_file())
        .iter()
        .step_by(2)
    {
        calls.unlink(&format!("large/{name}"), AtFlags::empty());
    }
    for link in names(&root.join("one"), |kind| kind.is_symlink()) {
        calls.unlink(&format!("one/{link}"), AtFlags::empty());
    }
    let file = std::fs::File::create(root.join("dir/written")).expect("a new file");
    let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 100_000);
    calls.note("fallocate dir/written".into(), allocated);
    calls.results
}

#[test]
fn without_the_key_encrypted_names_can_be_removed_and_nothing_else() {
    for recipe in [
        "-t ext4 -b 1024 -O encrypt,verity",
        "-t ext4 -b 4096 -O encrypt,^metadata_csum",
        "-t ext4 -b 1024 -O encrypt,^dir_index,^has_journal",
    ] {
        let Some(image) = image(recipe) else { return };
        let theirs = image.copy();
        let Some(kernel) = Mount::or_skip(theirs.path(), true) else {
            return;
        };
        let wanted = calls(kernel.root());
        kernel.close();
        let mounted = Mounted::new(image.path(), "");
        let found = calls(mounted.root());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found, wanted, "{recipe}");
        }
        assert_eq!(found.len(), wanted.len(), "{recipe}");
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
        let [ours, theirs] = [&image, &theirs].map(|image| {
            let kernel = Mount::new(image.path(), false).expect("the kernel mounts it");
            let tree = tree(kernel.root());
            kernel.close();
            tree
        });
        let shape =
            |tree: std::collections::BTreeMap<PathBuf, crate::mount_robust::encrypted::Seen>| {
                tree.into_iter()
                    .map(|(path, (_, mode, len, links, target))| (path, (mode, len, links, target)))
                    .collect::<Vec<_>>()
            };
        assert_eq!(shape(ours), shape(theirs), "{recipe}");
        let mounted = Mounted::new(image.path(), "");
        for dir in ["one", "large"] {
            std::fs::remove_dir_all(mounted.root().join(dir)).expect("it is removed");
        }
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
    }
}
