//! A chain of kills on one image.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use throughline::OpenOptions;
use throughline_device::LockMode;
use throughline_testing::{Mount, program};
use throughline_testkit::e2fs;

use crate::diary;
use crate::diary::load::Load;
use crate::diary::model::{Promises, World, judge};
use crate::diary::tree::{self, Tree};
use crate::kill::order::Order;
use crate::oracle::image::{Scratch, Shape, shape};

/// The longest time that a load runs before it is killed.
const LONGEST_MS: u64 = 160;
/// Not a measurement: limit for a load that never opens its image, or never ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// After one kill in this many, the kernel recovers a copy.
const KERNEL_EVERY: u64 = 10;

/// Counts of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Loads that were killed.
    pub(crate) kills: u64,
    /// Loads that finished before they could be killed.
    pub(crate) ended: u64,
    /// Kills while the image was being opened.
    pub(crate) opening: u64,
    /// Kills during a recovery.
    pub(crate) recovering: u64,
    /// Number of promises checked.
    pub(crate) promises: u64,
    /// Number of file contents checked.
    pub(crate) files: u64,
    /// Copies recovered by `e2fsck`, and by the kernel.
    pub(crate) by_e2fsck: u64,
    pub(crate) by_kernel: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.kills += other.kills;
        self.ended += other.ended;
        self.opening += other.opening;
        self.recovering += other.recovering;
        self.promises += other.promises;
        self.files += other.files;
        self.by_e2fsck += other.by_e2fsck;
        self.by_kernel += other.by_kernel;
    }
}

/// The kinds of volumes, and whether they have a journal.
fn recipes() -> [(Shape, bool); 7] {
    [
        (shape("ext4", 4096, true, "-t ext4"), true),
        (
            shape(
                "ext4 1k, ea_inode",
                1024,
                true,
                "-t ext4 -O orphan_file,ea_inode",
            ),
            true,
        ),
        (shape("ext2", 4096, false, "-t ext2"), false),
        (shape("ext3", 4096, false, "-t ext3"), true),
        (
            shape("ext3 1k, small journal", 1024, false, "-t ext3 -J size=1"),
            true,
        ),
        (
            shape(
                "ext4 without journal",
                1024,
                true,
                "-t ext4 -O ^has_journal",
            ),
            false,
        ),
        (
            shape(
                "ext4, small journal",
                4096,
                true,
                "-t ext4 -O orphan_file -J size=4",
            ),
            true,
        ),
    ]
    .map(|(shape, journal)| (shape.mib(48), journal))
}

struct Chain<'a> {
    seed: u64,
    image: PathBuf,
    scratch: &'a Path,
    journal: bool,
    block_bytes: u64,
    random: fastrand::Rng,
    /// The load reports syncs that it does not do.
    skips_syncs: bool,
    /// Output of `e2fsck -fy` for a volume without a journal.
    repaired: String,
    counts: Counts,
}

/// Runs one chain. With `skips_syncs`, the load reports promises that it does not keep.
pub(crate) fn run(
    seed: u64,
    kills: u64,
    skips_syncs: bool,
    scratch: &Scratch,
) -> Result<Counts, String> {
    let recipes = recipes();
    let (shape, journal) = &recipes[seed as usize % recipes.len()];
    let image = scratch.make(shape);
    let mut chain = Chain {
        seed,
        scratch: scratch.dir(),
        image,
        journal: *journal,
        block_bytes: shape.block_bytes,
        random: fastrand::Rng::with_seed(seed),
        skips_syncs,
        repaired: String::new(),
        counts: Counts::default(),
    };
    chain.plant()?;
    let mut world = World::default();
    // A load that finishes before it is killed does not count as a kill: another one runs.
    for number in 0..3 * kills {
        if chain.counts.kills == kills {
            break;
        }
        let named = |what: String| format!("{}, kill {number}: {what}", shape.name);
        world = chain.kill(number, &world).map_err(named)?;
    }
    Ok(chain.counts)
}

fn in_call(call: &'static str) -> impl Fn(throughline::Error) -> String {
    move |error| format!("{call}: {error}")
}

impl Chain<'_> {
    fn plant(&self) -> Result<(), String> {
        let volume = OpenOptions::new()
            .write(true)
            .open(&self.image)
            .map_err(in_call("open"))?;
        for dir in tree::DIRS {
            volume.create_dir(dir).map_err(in_call("mkdir"))?;
        }
        volume.close().map_err(in_call("close"))
    }

    /// Runs one load, kills it, and checks the image. Returns the recovered state.
    fn kill(&mut self, number: u64, world: &World) -> Result<World, String> {
        let diary = self.scratch.join("diary");
        // Some loads are short, so that closing is killed too.
        let ops = match self.random.u8(..5) {
            0 => self.random.u64(1..40),
            _ => 1_000_000,
        };
        self.load(&diary, number + 1, ops)?;
        let read = diary::read(&diary)?;
        self.counts.opening += u64::from(!read.opened);
        if self.journal && !read.closed && self.random.u8(..3) == 0 {
            self.kill_recovery()?;
        }
        self.wait_for_io_of_dead_process()?;
        let tree = match self.journal {
            true => self.recover(number)?,
            false => self.repair()?,
        };
        let promises = match self.journal {
            true => Promises::Journal,
            false => Promises::NoJournal {
                block_bytes: self.block_bytes,
            },
        };
        let judged = judge(world, &read.entries, &tree, promises)
            .map_err(|what| format!("{what}\n{}", self.repaired))?;
        self.counts.promises += judged.promises;
        self.counts.files += judged.files;
        Ok(World::of(&tree))
    }

    fn start(&self, diary: &Path, run: u64, ops: u64) -> Result<Child, String> {
        let _ = std::fs::remove_file(diary);
        let order = Order {
            image: self.image.clone(),
            diary: diary.to_owned(),
            load: Load {
                seed: self.seed,
                run,
                ops,
                skips_syncs: self.skips_syncs,
            },
        };
        let (name, value) = order.to_environment();
        Command::new(std::env::current_exe().map_err(|e| e.to_string())?)
            .args(["--exact", "kill::the_load", "--nocapture"])
            .env(name, value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())
    }

    /// Runs the load and kills it: mostly some time after it has opened the image, sometimes before.
    fn load(&mut self, diary: &Path, run: u64, ops: u64) -> Result<(), String> {
        let mut child = self.start(diary, run, ops)?;
        let early = self.random.u8(..8) == 0;
        let wait_ms = match early {
            true => self.random.u64(..12),
            false => self.random.u64(..LONGEST_MS),
        };
        if !early {
            wait_until(&mut child, || {
                std::fs::read(diary)
                    .is_ok_and(|text| text.starts_with(b"opened\n") || text.starts_with(b"failed"))
            })?;
        }
        std::thread::sleep(Duration::from_millis(wait_ms));
        match Self::end(child)? {
            true => self.counts.kills += 1,
            false => self.counts.ended += 1,
        }
        Ok(())
    }

    /// Starts a process that only opens the image, and so recovers it, and kills that process.
    fn kill_recovery(&mut self) -> Result<(), String> {
        let diary = self.scratch.join("diary of the recovery");
        let child = self.start(&diary, 0, 0)?;
        std::thread::sleep(Duration::from_millis(self.random.u64(..16)));
        self.counts.recovering += u64::from(Self::end(child)?);
        match diary.exists() {
            true => diary::read(&diary).map(drop),
            false => Ok(()),
        }
    }

    /// Kills a process; returns `false` if it had already exited successfully.
    fn end(mut child: Child) -> Result<bool, String> {
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        child.kill().map_err(|e| e.to_string())?;
        let status = child.wait().map_err(|e| e.to_string())?;
        match ended {
            Some(_) if !status.success() => Err(format!("the load ended with {status}")),
            Some(_) => Ok(false),
            None => Ok(true),
        }
    }

    /// Waits until the I/O that a dead process had submitted has completed: the process's lock is held
    /// until then. Tools that take no lock must not read the image before.
    fn wait_for_io_of_dead_process(&self) -> Result<(), String> {
        let locked = throughline_device::OpenOptions::new()
            .lock(LockMode::Shared)
            .open(&self.image);
        locked.map(drop).map_err(|e| e.to_string())
    }

    fn copy(&self, name: &str) -> Result<PathBuf, String> {
        let copy = self.scratch.join(name);
        run_tool("cp", &["--sparse=always"], &[&self.image, &copy], &[0])?;
        Ok(copy)
    }

    /// With a journal: recovers the image, and copies of it by other means; all must give the same tree.
    fn recover(&mut self, number: u64) -> Result<Tree, String> {
        let others = [
            number
                .is_multiple_of(3)
                .then(|| self.by_e2fsck())
                .transpose()?,
            (number % KERNEL_EVERY == self.seed % KERNEL_EVERY)
                .then(|| self.by_kernel())
                .transpose()?
                .flatten(),
            number
                .is_multiple_of(2)
                .then(|| tree::of_image(&self.image))
                .transpose()?,
        ];
        let volume = OpenOptions::new()
            .write(true)
            .open(&self.image)
            .map_err(in_call("opening to recover"))?;
        let tree = tree::of_volume(&volume)?;
        volume.close().map_err(in_call("closing"))?;
        run_tool("e2fsck", &["-fn"], &[&self.image], &[0])?;
        let who = ["e2fsck", "the kernel", "our overlay"];
        for (other, who) in others.iter().zip(who) {
            if let Some(text) = other
                .as_ref()
                .and_then(|other| tree::differences(&tree, other))
            {
                return Err(format!("our recovery, then that of {who}: {text}"));
            }
        }
        Ok(tree)
    }

    fn by_e2fsck(&mut self) -> Result<Tree, String> {
        let copy = self.copy("by e2fsck")?;
        run_tool("e2fsck", &["-fy"], &[&copy], &[0, 1])?;
        run_tool("e2fsck", &["-fn"], &[&copy], &[0])?;
        self.counts.by_e2fsck += 1;
        tree::of_image(&copy)
    }

    /// Recovery by the kernel; `None`, with a message, if it does not mount the image.
    fn by_kernel(&mut self) -> Result<Option<Tree>, String> {
        let copy = self.copy("by the kernel")?;
        let Some(mount) = Mount::or_skip(&copy, true) else {
            return Ok(None);
        };
        let tree = tree::of_mount(mount.root())?;
        mount.close();
        run_tool("e2fsck", &["-fn"], &[&copy], &[0])?;
        self.counts.by_kernel += 1;
        Ok(Some(tree))
    }

    /// Without a journal: `e2fsck` repairs the image.
    fn repair(&mut self) -> Result<Tree, String> {
        self.repaired = run_tool("e2fsck", &["-fy"], &[&self.image], &[0, 1])?;
        run_tool("e2fsck", &["-fn"], &[&self.image], &[0])?;
        tree::of_image(&self.image)
    }
}

fn wait_until(child: &mut Child, so: impl Fn() -> bool) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    while !so() && child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            return Err("the load does not open its image".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Runs a tool, which must exit with one of the `good` codes; returns its output.
fn run_tool(tool: &str, options: &[&str], paths: &[&Path], good: &[i32]) -> Result<String, String> {
    let ran = program::run(e2fs::tool(tool).args(options).args(paths), e2fs::LIMIT);
    let code = ran.code();
    match good.contains(&code) {
        true => Ok(ran.text()),
        false => Err(format!(
            "{tool} {options:?} exited with {code}: {}",
            ran.text()
        )),
    }
}
