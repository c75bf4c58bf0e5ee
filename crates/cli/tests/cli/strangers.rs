//! Trees in which somebody else exchanges names while `pack`, `mkfs -d` and `cp -a` read or write them, as a
//! user can in a directory of his own where root works. Nothing from outside gets into an image, nothing
//! outside is changed, and what is known of a file comes from one file.
//!
//! `THROUGHLINE_SOAK=1` repeats each of it 200 times.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags, mknodat,
    renameat_with, setxattr, utimensat,
};
use throughline::Volume;

use crate::common::{Image, ok, throughline, tools_are_missing};

/// Content and names that are outside.
const SECRET: &str = "a-stranger-must-not-get-this";

/// How often each is repeated. Twenty found what was wrong.
fn runs() -> u32 {
    throughline_testkit::tier::pick(4, 20, 200)
}

/// Exchanges pairs of names, again and again, until it is dropped.
struct Stranger {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Stranger {
    fn exchanging(pairs: Vec<(PathBuf, PathBuf)>) -> Stranger {
        let (stop, exchanges) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, done) = (Arc::clone(&stop), Arc::clone(&exchanges));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for (a, b) in &pairs {
                    // One of them may not be there yet.
                    let exchanged = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
                    done.fetch_add(u64::from(exchanged.is_ok()), Ordering::Relaxed);
                }
            }
        });
        Stranger {
            stop,
            exchanges,
            thread: Some(thread),
        }
    }

    /// Ends it. Returns how often it has exchanged something.
    fn end(mut self) -> u64 {
        self.join();
        self.exchanges.load(Ordering::Relaxed)
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.join();
    }
}

/// A directory with a place for secrets, and one that strangers may write to.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        let secret = place.path("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("file"), SECRET).unwrap();
        fs::set_permissions(secret.join("file"), Permissions::from_mode(0o600)).unwrap();
        fs::write(secret.join(SECRET), "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o700)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A fresh directory for strangers.
    fn tree(&self) -> PathBuf {
        let tree = self.path("tree");
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir(&tree).unwrap();
        tree
    }

    /// The secrets are what they were, and where.
    #[track_caller]
    fn assert_untouched(&self, run: u32) {
        let secret = self.path("secret");
        let mut names: Vec<_> = fs::read_dir(&secret)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, [SECRET, "file"], "run {run}");
        let about = |path: &Path| {
            let meta = path.symlink_metadata().unwrap();
            (meta.mode() & 0o7777, meta.nlink())
        };
        assert_eq!(about(&secret), (0o700, 2), "run {run}");
        assert_eq!(about(&secret.join("file")), (0o600, 1), "run {run}");
        assert_eq!(fs::read(secret.join("file")).unwrap(), SECRET.as_bytes());
    }
}

/// Runs a command that may find that things change under its hands, and no other fault.
#[track_caller]
fn attempt(arguments: &[&Path]) {
    let ran = throughline().arg("-q").args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.code().is_some_and(|code| code < 2) && !errors.contains("panicked"),
        "{arguments:?}: {errors}"
    );
}

/// The ways from a directory into an image.
const WAYS_IN: [&str; 3] = ["pack", "mkfs", "cp"];

/// Makes an image of a tree, if the tree stays as it is for long enough.
fn image_of(tree: &Path, way: &str, image: &Path) {
    let _ = fs::remove_file(image);
    let path = |text: &'static str| Path::new(text);
    match way {
        "pack" => attempt(&[path("pack"), tree, path("-o"), image]),
        "mkfs" => attempt(&[path("mkfs"), path("-d"), tree, image, path("8M")]),
        _ => {
            ok(["mkfs", "-q", image.to_str().unwrap(), "8M"]);
            let root = format!("{}:/", image.display());
            attempt(&[path("cp"), path("-a"), &tree.join("."), Path::new(&root)]);
        }
    }
}

fn contains(image: &Path, text: &str) -> bool {
    let bytes = fs::read(image).unwrap_or_default();
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[test]
fn nothing_from_outside_gets_into_an_image() {
    if tools_are_missing() {
        return;
    }
    for way in WAYS_IN {
        let place = Place::new();
        let (tree, image) = (place.tree(), place.path("image"));
        let mut pairs = Vec::new();
        for number in 0..2 {
            let above = tree.join(number.to_string());
            let (inside, link) = (above.join("d"), above.join("x"));
            fs::create_dir_all(&inside).unwrap();
            symlink(place.path("secret"), &link).unwrap();
            pairs.push((inside, link));
        }
        let stranger = Stranger::exchanging(pairs);
        for run in 0..runs() {
            image_of(&tree, way, &image);
            assert!(!contains(&image, SECRET), "{way}: run {run}");
            place.assert_untouched(run);
        }
        assert!(stranger.end() > 0);
    }
}

/// Two files that differ in all that can be told of them, and are exchanged.
#[test]
fn what_is_known_of_a_file_is_of_one_file() {
    if tools_are_missing() {
        return;
    }
    for way in WAYS_IN {
        let place = Place::new();
        let (tree, image) = (place.tree(), place.path("image"));
        let pair = |kind: &str| [0, 1].map(|number| tree.join(format!("{kind}{number}")));
        let (files, links) = (pair("file"), pair("link"));
        for (number, (file, link)) in (0..).zip(files.iter().zip(&links)) {
            fs::write(file, "").unwrap();
            let value = number.to_string();
            setxattr(file, "user.who", value.as_bytes(), XattrFlags::empty()).unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o600 + number)).unwrap();
            symlink(&value, link).unwrap();
            let time = Timespec {
                tv_sec: number.into(),
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        let pairs = [files, links].map(|[a, b]| (a, b)).to_vec();
        let stranger = Stranger::exchanging(pairs);
        for run in 0..runs() {
            image_of(&tree, way, &image);
            let Ok(volume) = Volume::open(&image) else {
                continue;
            };
            for name in ["file0", "file1", "link0", "link1"] {
                let Ok(meta) = volume.symlink_metadata(name) else {
                    continue;
                };
                let (one, other) = if meta.is_symlink() {
                    let target = volume.read_link(name).unwrap();
                    let modified = meta.modified().duration_since(std::time::UNIX_EPOCH);
                    let second = modified.unwrap().as_secs();
                    (target.to_str().unwrap().to_owned(), second.to_string())
                } else {
                    let value = volume.xattrs(name).unwrap().get("user.who").unwrap();
                    let value = String::from_utf8(value.unwrap()).unwrap();
                    (value, (meta.mode() & 0o7).to_string())
                };
                assert_eq!(one, other, "{way}: run {run}: {name}");
            }
        }
        assert!(stranger.end() > 0);
    }
}

/// What a stranger finds to exchange in the target of a copy.
struct Trap {
    what: &'static str,
    /// Makes the source, in a directory of this machine.
    source: fn(&Path),
    /// Prepares the target. Returns what is exchanged.
    target: fn(&Place, &Path) -> Vec<(PathBuf, PathBuf)>,
    check: fn(&Path, u32),
}

const MANY: u32 = 48;

const TRAPS: &[Trap] = &[
    Trap {
        what: "fifos and links",
        source: |source| {
            for number in 0..MANY {
                let fifo = source.join(format!("p{number}"));
                mknodat(CWD, &fifo, FileType::Fifo, Mode::empty(), 0).unwrap();
                fs::set_permissions(&fifo, Permissions::from_mode(0o666)).unwrap();
            }
        },
        target: |place, target| {
            let pair = |number| {
                let link = target.join(format!("x{number}"));
                symlink(place.path("secret/file"), &link).unwrap();
                (target.join(format!("p{number}")), link)
            };
            (0..MANY).map(pair).collect()
        },
        check: |_, _| {},
    },
    Trap {
        what: "directories of hard links, and links",
        source: |source| {
            for number in 0..MANY {
                let dir = source.join(format!("a{number}"));
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join("file"), "public").unwrap();
                fs::hard_link(dir.join("file"), source.join(format!("b{number}"))).unwrap();
            }
        },
        target: |place, target| {
            let pair = |number| {
                let link = target.join(format!("x{number}"));
                symlink(place.path("secret"), &link).unwrap();
                (target.join(format!("a{number}")), link)
            };
            (0..MANY).map(pair).collect()
        },
        check: |_, _| {},
    },
    Trap {
        what: "new directories and private ones",
        source: |source| {
            for number in 0..MANY {
                let dir = source.join(format!("d{number}"));
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join("file"), "public").unwrap();
            }
        },
        target: |_, target| {
            let pair = |number| {
                let private = target.join(format!("x{number}"));
                fs::create_dir(&private).unwrap();
                fs::write(private.join(SECRET), "").unwrap();
                fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
                (target.join(format!("d{number}")), private)
            };
            (0..MANY).map(pair).collect()
        },
        check: |target, run| {
            for entry in fs::read_dir(target).unwrap() {
                let dir = entry.unwrap().path();
                if dir.join(SECRET).exists() {
                    let mode = dir.metadata().unwrap().mode() & 0o777;
                    assert_eq!(mode, 0o700, "run {run}: {}", dir.display());
                    assert!(!dir.join("file").exists(), "run {run}: {}", dir.display());
                }
            }
        },
    },
];

#[test]
fn nothing_outside_the_target_of_a_copy_is_changed() {
    if tools_are_missing() {
        return;
    }
    for trap in TRAPS {
        let (place, image) = (Place::new(), Image::ext4());
        let source = place.path("source");
        fs::create_dir(&source).unwrap();
        (trap.source)(&source);
        let source = source.join(".");
        ok(["-q", "cp", "-a", source.to_str().unwrap(), &image.at("/")]);
        let from = image.at("/.");
        let mut exchanges = 0;
        for run in 0..runs() {
            let target = place.tree();
            let stranger = Stranger::exchanging((trap.target)(&place, &target));
            attempt(&[Path::new("cp"), Path::new("-a"), Path::new(&from), &target]);
            exchanges += stranger.end();
            place.assert_untouched(run);
            (trap.check)(&target, run);
        }
        assert!(exchanges > 0, "{}", trap.what);
    }
}
