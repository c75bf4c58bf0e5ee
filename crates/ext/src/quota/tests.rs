//! Usage after every kind of change, judged by `e2fsck`, which counts it anew.

mod limits;

use std::io::IoSlice;
use std::sync::Arc;

use throughline_extfmt::quota::QuotaKind;
use throughline_testing::Image as Medium;
use throughline_testkit::tier::pick;

use crate::testing::{Image, Rng, power_on};
use crate::{
    Attributes, Error, Fallocate, Fs, Inode, NewInode, NewKind, Reason, RenameMode, XattrMode,
};

const ALL_KINDS: &str = "quotatype=usrquota:grpquota:prjquota";

/// Size, features, further arguments of `mke2fs`.
const SHAPES: &[(&str, &str, &[&str])] = &[
    ("24M", "quota,project", &["-b", "1024", "-J", "size=1"]),
    ("40M", "quota,project", &["-b", "4096", "-J", "size=4"]),
    ("24M", "quota,project,^has_journal", &["-b", "1024"]),
    (
        "24M",
        "quota,project,orphan_file,ea_inode",
        &["-b", "1024", "-J", "size=1"],
    ),
    (
        "24M",
        "quota,project,inline_data,^metadata_csum",
        &["-b", "2048", "-J", "size=2"],
    ),
    (
        "24M",
        "quota,project,^extent,^64bit,^huge_file",
        &["-b", "1024", "-J", "size=1"],
    ),
];

fn make(size: &str, features: &str, more: &[&str]) -> Option<Image> {
    let mut args = vec!["-t", "ext4", "-O", features, "-E", ALL_KINDS, "-N", "4096"];
    args.extend(more);
    Image::make(size, &args)
}

/// Some ids share a leaf of the tree, some only its root.
fn some_id(rng: &mut Rng) -> u32 {
    match rng.below(6) {
        0 => 0,
        1 => 1000 + rng.below(60) as u32,
        2 => 70_000 + rng.below(3) as u32 * 256,
        3 => 0xFFFF_0000 + rng.below(4) as u32,
        _ => rng.below(20) as u32,
    }
}

/// Random changes; the volume has room for all of them.
struct Work {
    fs: Arc<Fs>,
    rng: Rng,
    dirs: Vec<Arc<Inode>>,
    /// Directory, name.
    files: Vec<(usize, Vec<u8>)>,
    next: u64,
}

impl Work {
    fn new(fs: &Arc<Fs>, seed: u64) -> Self {
        Self {
            fs: Arc::clone(fs),
            rng: Rng::new(seed),
            dirs: vec![fs.root().expect("the root")],
            files: Vec::new(),
            next: 0,
        }
    }

    fn name(&mut self) -> Vec<u8> {
        self.next += 1;
        let mut name = format!("{}-", self.next).into_bytes();
        name.resize(20 + self.rng.below(80) as usize, b'n');
        name
    }

    fn create(&mut self) {
        let at = self.rng.below(self.dirs.len() as u64) as usize;
        let name = self.name();
        let target = vec![b't'; 30 + self.rng.below(200) as usize];
        let kind = match self.rng.below(8) {
            0 => NewKind::Dir,
            1 => NewKind::Symlink(&target),
            2 => NewKind::Fifo,
            _ => NewKind::File,
        };
        let new = NewInode {
            permissions: 0o755,
            uid: some_id(&mut self.rng),
            gid: some_id(&mut self.rng),
            umask: 0,
        };
        let made = self.fs.create(&self.dirs[at], &name, kind, new);
        let inode = made.unwrap_or_else(|e| panic!("create: {e}"));
        match kind {
            NewKind::Dir if self.dirs.len() < 12 => {
                self.dirs.push(inode);
            }
            NewKind::Dir => {}
            _ => self.files.push((at, name)),
        }
    }

    fn some_file(&mut self) -> Option<(Arc<Inode>, usize)> {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (dir, name) = self.files.get(at)?;
        let inode = self.fs.lookup(&self.dirs[*dir], name).expect("a file");
        Some((inode, at))
    }

    fn write(&mut self) {
        let Some((file, _)) = self
            .some_file()
            .filter(|(file, _)| file.file_type() == Some(crate::FileType::Regular))
        else {
            return;
        };
        let (offset, len) = (self.rng.below(200_000), 1 + self.rng.below(30_000));
        let bytes = vec![7; len as usize];
        match self.rng.below(5) {
            0 => drop(
                self.fs
                    .write_at(&file, offset, &[IoSlice::new(&bytes)])
                    .expect("direct"),
            ),
            1 => {
                let mode = match self.rng.below(4) {
                    0 => Fallocate::KeepSize,
                    1 => Fallocate::PunchHole,
                    2 => Fallocate::ZeroRange,
                    _ => Fallocate::Allocate,
                };
                match self.fs.fallocate(&file, mode, offset, len) {
                    Ok(()) | Err(Error::Unsupported(_)) => {}
                    Err(error) => panic!("{mode:?}: {error}"),
                }
            }
            2 => self
                .fs
                .truncate(&file, self.rng.below(100_000))
                .expect("truncated"),
            _ => {
                let open = self.fs.open_file(&file).expect("opened");
                let done = open.write(true, Some(offset), &[IoSlice::new(&bytes)]);
                assert_eq!(done.expect("written").1, bytes.len());
            }
        }
    }

    fn change_owner(&mut self) {
        let dir = self.rng.below(5) == 0;
        let inode = match dir {
            true => Arc::clone(&self.dirs[self.rng.below(self.dirs.len() as u64) as usize]),
            false => match self.some_file() {
                Some((file, _)) => file,
                None => return,
            },
        };
        match self.rng.below(3) {
            0 => {
                let id = some_id(&mut self.rng);
                self.fs.set_project(&inode, id).expect("a project");
            }
            1 => {
                let value = vec![b'v'; self.rng.below(1500) as usize];
                let name = format!("user.{}", self.rng.below(3));
                let set = self
                    .fs
                    .set_xattr(&inode, name.as_bytes(), &value, XattrMode::Either);
                match set {
                    Ok(()) | Err(Error::Caller(Reason::NoSpace | Reason::Permission)) => {}
                    Err(error) => panic!("{name}: {error}"),
                }
            }
            _ => {
                let set = Attributes {
                    uid: Some(some_id(&mut self.rng)),
                    gid: (self.rng.below(2) == 0).then(|| some_id(&mut self.rng)),
                    ..Attributes::default()
                };
                self.fs.set_attributes(&inode, &set).expect("owners");
            }
        }
    }

    fn remove(&mut self) {
        let Some((file, at)) = self.some_file() else {
            return;
        };
        let (dir, name) = self.files.swap_remove(at);
        if self.rng.below(3) == 0 {
            let fresh = self.name();
            let to = self.rng.below(self.dirs.len() as u64) as usize;
            let (from, into) = (&self.dirs[dir], &self.dirs[to]);
            match self
                .fs
                .rename(from, &name, into, &fresh, RenameMode::NoReplace)
            {
                Ok(()) => self.files.push((to, fresh)),
                Err(error) => panic!("rename: {error}"),
            }
            return;
        }
        if self.rng.below(4) == 0 {
            // Removed while open.
            self.fs.open_inode(&file).expect("opened");
            self.fs.unlink(&self.dirs[dir], &name).expect("removed");
            self.fs.close_inode(&file).expect("closed");
            return;
        }
        self.fs.unlink(&self.dirs[dir], &name).expect("removed");
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            match self.rng.below(10) {
                0..3 => self.create(),
                3..6 => self.write(),
                6..8 => self.change_owner(),
                8 if self.files.len() > 10 => self.remove(),
                9 if step % 20 == 0 => self.fs.sync().expect("a sync"),
                _ if self.files.len() > 60 => self.remove(),
                _ => {}
            }
        }
    }
}

/// The ids that a quota file lists.
fn listed(image: &Image, kind: QuotaKind) -> usize {
    let fs = Arc::new(image.open());
    let count = (0..70_600)
        .chain(0xFFFF_0000..0xFFFF_0010)
        .filter(|id| {
            super::find::entry(&fs, kind, *id)
                .expect("a tree")
                .is_some()
        })
        .count();
    fs.shut_down().expect("closed");
    count
}

#[test]
fn usage_follows_every_change() {
    for (seed, (size, features, more)) in (1..).zip(SHAPES) {
        let Some(image) = make(size, features, more) else {
            continue;
        };
        println!("{features} {more:?}: seed {seed}");
        let fs = Arc::new(image.open());
        assert!(fs.quotas.is_on());
        let mut work = Work::new(&fs, seed);
        work.run(1200);
        assert_eq!(fs.journal.status().credit_overruns, 0, "{features}");
        let rest: Vec<_> = std::mem::take(&mut work.files);
        let dirs = std::mem::take(&mut work.dirs);
        drop(work);
        fs.shut_down().expect("closed");
        drop((dirs, fs));
        image.check(&format!("{features}, in use"));
        let fs = Arc::new(image.open());
        let again = Work::new(&fs, seed);
        drop((again, rest));
        fs.shut_down().expect("closed");
        image.check(&format!("{features}, opened again"));
    }
}

/// The tree of a quota file grows by hundreds of ids, and shrinks when they use nothing.
#[test]
fn entries_come_and_go() {
    let Some(image) = make("40M", "quota,project", &["-b", "1024"]) else {
        return;
    };
    let fs = Arc::new(image.open());
    let root = fs.root().expect("the root");
    let ids: Vec<u32> = (0..300).map(|id| id * 235 % 70_600).collect();
    let new = |uid| NewInode {
        permissions: 0o600,
        uid,
        gid: uid / 100,
        umask: 0,
    };
    for id in &ids {
        let name = format!("{id}");
        fs.create(&root, name.as_bytes(), NewKind::File, new(*id))
            .expect("created");
    }
    fs.shut_down().expect("closed");
    drop((root, fs));
    image.check("many owners");
    assert_eq!(listed(&image, QuotaKind::User), 300);
    let fs = Arc::new(image.open());
    let root = fs.root().expect("the root");
    for id in ids.iter().filter(|id| **id != 0) {
        fs.unlink(&root, format!("{id}").as_bytes())
            .expect("removed");
    }
    fs.shut_down().expect("closed");
    drop((root, fs));
    image.check("one owner");
    assert_eq!(listed(&image, QuotaKind::User), 1);
    let fs = Arc::new(image.open());
    let header = fs.quotas.file(QuotaKind::User).expect("a file").header();
    assert_ne!(header.dqi_free_blk.get(), 0);
    let root = fs.root().expect("the root");
    for id in &ids {
        let name = format!("again {id}");
        fs.create(&root, name.as_bytes(), NewKind::File, new(*id))
            .expect("created");
    }
    let after = fs.quotas.file(QuotaKind::User).expect("a file").header();
    assert_eq!(
        header.dqi_blocks.get(),
        after.dqi_blocks.get(),
        "free blocks are used again"
    );
    fs.shut_down().expect("closed");
    drop((root, fs));
    image.check("many owners again");
}

/// After a power cut at any point, the replayed volume has the usage of its inodes.
#[test]
fn usage_survives_power_cuts() {
    for (seed, (size, features, more)) in (20..).zip(SHAPES) {
        if features.contains("^has_journal") {
            continue;
        }
        let Some(image) = make(size, features, more) else {
            continue;
        };
        let medium = Medium::read_file(image.path()).expect("the image");
        let (device, fs) = power_on(&medium);
        let fs = Arc::new(fs.expect("opens"));
        let mut work = Work::new(&fs, seed);
        work.run(250);
        drop(work);
        fs.shut_down().expect("closed");
        drop(fs);
        let record = device.record();
        let cuts = record.cuts(pick(4, 12, 12), seed);
        let judged = record.judge_states(cuts, features, |state| {
            let copy = image.copy();
            copy.hold(state);
            let fs = Arc::new(copy.open());
            fs.shut_down().expect("closed");
            drop(fs);
            copy.check(features);
        });
        assert!(judged > 0);
    }
}
