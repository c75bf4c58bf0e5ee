//! The server is killed with SIGKILL while programs save files as editors do and never sync them; fsyncs of
//! another thread commit at any moment. After each kill every file must be one complete saved version, no
//! older than before.
//!
//! The kernel's ext4 runs the same load, and its volume is shut down instead of killed; its results are
//! printed for comparison.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use throughline_testing::{DiskImage, Mount, Mounted, program};
use throughline_testkit::e2fs;

use crate::mount_robust::kills::wait_for_io_of_dead_process;
use crate::mount_robust::work;
use crate::oracle::image::tools;
use crate::oracle::seeds::soak;

/// How the volumes are made.
const RECIPES: [&str; 4] = [
    "-t ext4",
    "-t ext3",
    "-t ext2",
    "-t ext4 -b 1024 -O ^has_journal",
];
/// Kills per volume, in the fast test and in the long one.
const KILLS: [u64; 2] = [4, 25];
/// Number of saving threads. Each has one file per way of saving.
const SAVERS: usize = 3;
/// Maximum number of saves before the kill.
const MAX_SAVES: u64 = 60;
/// Staged data is not written by age while a file is being rewritten.
const PATIENT: &str = "commit=60";
/// Not a measurement: limit for a load that never gets that far.
const PATIENCE: Duration = Duration::from_secs(120);

/// The way in which a program saves.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A new file is renamed over the old one.
    Rename,
    /// The old file is truncated and rewritten.
    Truncate,
    /// The old file gets another name, and a new one is renamed to the first.
    Link,
    /// A new file is exchanged with the old one.
    Exchange,
    /// The old file is renamed over the backup, and a new one is created: the backup must be complete.
    Backup,
}

const WAYS: [Way; 5] = [
    Way::Rename,
    Way::Truncate,
    Way::Link,
    Way::Exchange,
    Way::Backup,
];

/// A file that is saved.
struct Saved {
    name: String,
    number: u64,
    way: Way,
    /// The version whose save began last.
    begun: AtomicU64,
    /// The oldest version that may be found.
    least: u64,
}

impl Saved {
    fn all() -> Vec<Saved> {
        let ways = (0..SAVERS).flat_map(|_| WAYS);
        ways.enumerate()
            .map(|(number, way)| Saved {
                name: format!("{way:?}-{number}"),
                number: number as u64,
                way,
                begun: AtomicU64::new(0),
                least: 0,
            })
            .collect()
    }

    fn path(&self, root: &Path) -> PathBuf {
        root.join(&self.name)
    }

    fn backup(&self, root: &Path) -> PathBuf {
        root.join(format!("{}~", self.name))
    }

    /// A version: its number, and contents unique to it.
    fn content(&self, version: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(self.number << 32 ^ version);
        let most = [1, 600, 6000, 40_000, 150_000][random.usize(..5)];
        let mut bytes = vec![0; 8 + random.usize(1..=most)];
        random.fill(&mut bytes);
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    /// Saves the next version.
    fn save(&self, root: &Path, random: &mut fastrand::Rng) -> io::Result<()> {
        let version = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let content = self.content(version);
        let (path, backup) = (self.path(root), self.backup(root));
        let new = root.join(format!("{}.{version}", self.name));
        let write = |mut file: File| {
            let piece = content.len().div_ceil(3);
            content.chunks(piece).try_for_each(|p| file.write_all(p))
        };
        match self.way {
            Way::Truncate => {
                let file = match random.bool() {
                    true => File::create(&path)?,
                    false => {
                        let file = OpenOptions::new().write(true).open(&path)?;
                        file.set_len(0)?;
                        file
                    }
                };
                return write(file);
            }
            Way::Backup => {
                fs::rename(&path, &backup)?;
                return write(File::create_new(&path)?);
            }
            Way::Link => {
                fs::remove_file(&backup)?;
                fs::hard_link(&path, &backup)?;
            }
            Way::Rename | Way::Exchange => {}
        }
        write(File::create_new(&new)?)?;
        if matches!(self.way, Way::Exchange) {
            renameat_with(CWD, &new, CWD, &path, RenameFlags::EXCHANGE)?;
            return fs::remove_file(&new);
        }
        fs::rename(&new, &path)
    }

    /// The version that a file contains.
    fn version(&self, path: &Path) -> Result<u64, String> {
        let found = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let version = found.first_chunk().copied().map(u64::from_le_bytes);
        match version.filter(|version| self.content(*version) == found) {
            Some(version) => Ok(version),
            None => Err(format!("{}: {} bytes", path.display(), found.len())),
        }
    }

    /// Whether the file that must be complete is, with an allowed version.
    fn check(&mut self, root: &Path) -> Result<(), String> {
        let whole = match self.way {
            Way::Backup => self.backup(root),
            _ => self.path(root),
        };
        let (version, begun) = (self.version(&whole)?, self.begun.load(Ordering::SeqCst));
        if !(self.least..=begun).contains(&version) {
            let least = self.least;
            return Err(format!("{}: {version} of {least} to {begun}", self.name));
        }
        self.least = version;
        if matches!(self.way, Way::Link) && self.backup(root).exists() {
            self.version(&self.backup(root))?;
        }
        Ok(())
    }

    /// Makes the current state durable, as the start for the next load.
    fn renew(&mut self, root: &Path) -> io::Result<()> {
        self.least = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        for path in [self.path(root), self.backup(root)] {
            let file = File::create(path)?;
            file.write_all_at(&self.content(self.least), 0)?;
            file.sync_all()?;
        }
        Ok(())
    }
}

/// Saves until the volume is gone; calls `stop` after a number of saves.
fn load(root: &Path, files: &[Saved], seed: u64, stop: impl FnOnce()) -> Result<(), String> {
    let enough = fastrand::Rng::with_seed(seed).u64(3..MAX_SAVES);
    let saves = AtomicU64::new(0);
    let saver = |number: usize| {
        let mut random = fastrand::Rng::with_seed(seed ^ (number as u64) << 40);
        let own: Vec<&Saved> = files.iter().skip(number).step_by(SAVERS).collect();
        while own[random.usize(..own.len())]
            .save(root, &mut random)
            .is_ok()
        {
            saves.fetch_add(1, Ordering::SeqCst);
        }
    };
    let commits = || -> io::Result<()> {
        let log = File::create(root.join("log"))?;
        loop {
            log.write_all_at(&[7; 512], 0)?;
            log.sync_all()?;
        }
    };
    std::thread::scope(|scope| {
        (0..SAVERS).for_each(|number| drop(scope.spawn(move || saver(number))));
        scope.spawn(commits);
        let until = Instant::now() + PATIENCE;
        while saves.load(Ordering::SeqCst) < enough && Instant::now() < until {
            std::thread::yield_now();
        }
        stop();
    });
    match saves.load(Ordering::SeqCst) {
        done if done >= enough => Ok(()),
        done => Err(format!("{done} saves of {enough} in {PATIENCE:?}")),
    }
}

/// What became of the files.
#[derive(Debug, Default)]
struct Found {
    kills: u64,
    files: usize,
    wrong: Vec<String>,
}

impl Found {
    /// Checks what a crash left, and recreates all files.
    fn look(&mut self, root: &Path, files: &mut [Saved]) -> io::Result<()> {
        self.kills += 1;
        for file in &mut *files {
            self.files += 1;
            self.wrong.extend(file.check(root).err());
        }
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        files.iter_mut().try_for_each(|file| file.renew(root))
    }
}

fn has_journal(recipe: &str) -> bool {
    !recipe.contains("ext2") && !recipe.contains("^has_journal")
}

fn repair(image: &Path, recipe: &str) {
    if !has_journal(recipe) {
        e2fs::e2fsck(image, &["-fy"]);
    }
}

/// Runs the load on our mount, with this many kills.
fn ours(recipe: &str, options: &str, kills: u64) -> Result<Found, String> {
    let image = DiskImage::make(recipe, "64M").ok_or("no image")?;
    let image = image.path();
    let (mut files, mut found) = (Saved::all(), Found::default());
    for number in 0..=kills {
        let mut mounted = Mounted::start(image, options)?;
        let root = mounted.root().to_owned();
        match number {
            0 => files.iter_mut().try_for_each(|file| file.renew(&root)),
            _ => found.look(&root, &mut files),
        }
        .map_err(|error| format!("{recipe}, kill {number}: {error}: {}", mounted.log()))?;
        if number == kills {
            mounted.unmount();
            break;
        }
        load(&root, &files, number, || mounted.kill())?;
        drop(mounted);
        wait_for_io_of_dead_process(image)?;
        repair(image, recipe);
    }
    work::e2fsck(image)?;
    Ok(found)
}

/// Runs the load on the kernel's mount, with this many shutdowns; returns the reason if that is not possible.
fn kernels(recipe: &str, kills: u64) -> Result<Found, String> {
    if !program::has(&["xfs_io"]) {
        return Err("no xfs_io".into());
    }
    let image = DiskImage::make(recipe, "64M").ok_or("no image")?;
    let (mut files, mut found) = (Saved::all(), Found::default());
    for number in 0..=kills {
        // The kernel also commits by itself, but not by age if that can be configured.
        let options = match has_journal(recipe) {
            true => "loop,rw,commit=300",
            false => "loop,rw",
        };
        let mount = Mount::with_options(image.path(), options)?;
        let root = mount.root().to_owned();
        match number {
            0 => files.iter_mut().try_for_each(|file| file.renew(&root)),
            _ => found.look(&root, &mut files),
        }
        .map_err(|error| error.to_string())?;
        let mut is_down = number == kills;
        if !is_down {
            let stop = || {
                let mut command = Command::new("xfs_io");
                command.args(["-x", "-c", "shutdown"]).arg(&root);
                is_down = program::run(&mut command, work::PATIENCE).status.success();
            };
            load(&root, &files, number, stop)?;
        }
        mount.close();
        if !is_down {
            return Err("it is not shut down".into());
        }
        repair(image.path(), recipe);
    }
    Ok(found)
}

fn possible() -> bool {
    Mounted::possible() && tools()
}

#[test]
fn files_that_are_saved_are_whole_after_a_kill() {
    if !possible() {
        return;
    }
    let kills = KILLS[usize::from(soak())];
    let mut wrong = Vec::new();
    for recipe in RECIPES {
        let found = ours(recipe, PATIENT, kills).unwrap_or_else(|what| panic!("{recipe}: {what}"));
        let describe = |found: &Found| {
            format!(
                "{} of {} files not whole after {} crashes",
                found.wrong.len(),
                found.files,
                found.kills
            )
        };
        let theirs = kernels(recipe, kills);
        let theirs =
            theirs.map_or_else(|why| format!("not tried, {why}"), |found| describe(&found));
        eprintln!(
            "{recipe}: {}; the kernel's ext4: {theirs}",
            describe(&found)
        );
        assert!(found.files >= WAYS.len() * SAVERS, "{recipe}: {found:?}");
        wrong.extend(found.wrong.iter().map(|what| format!("{recipe}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks the checker: it must detect broken promises.
#[test]
fn files_that_are_saved_without_the_promise_are_noticed() {
    if !possible() {
        return;
    }
    let options = format!("noauto_da_alloc,{PATIENT}");
    let found = ours(RECIPES[0], &options, 10).expect("it works");
    eprintln!("{} of {} files not whole", found.wrong.len(), found.files);
    assert!(!found.wrong.is_empty());
}
