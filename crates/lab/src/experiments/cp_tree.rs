//! `cp/tree`: trees of small files into an ext4 image: 50,000 files by `cp -r`, compared with a scripted
//! `debugfs -w` of the same tree, and 20,000 by `cp -a`, compared with the kernel's on a loop mount.
//!
//! All use the same image in turn. It was fully written before, so that the disk's file system allocates
//! nothing.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{drop_cached, own_cp, timed};
use crate::interleave::{Sample, Variant};
use crate::kernel::{LoopMount, e2fsck, may_mount, mkfs, named};
use crate::outcome::{Outcome, ratios};
use crate::streams::{targets::write_out, writers};
use crate::{Result, Settings};

const FILES_PER_FOLDER: u64 = 100;
const MAX_MEMORY_MIB: f64 = 256.0;

/// The variants.
const CP: &str = "cp -r";
const DEBUGFS: &str = "debugfs";
const CP_A: &str = "cp -a";
const KERNEL: &str = "kernel's cp -a";

/// The image that all copy to.
struct Image {
    path: PathBuf,
    inodes: String,
    engine: String,
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let [tree, other, path, script] =
        ["tree", "other", "image", "script"].map(|name| scratch.path().join(name));
    let files = settings.scaled(50_000, 500);
    let others = settings.scaled(20_000, 200);
    fs::write(&script, make_tree(&tree, files)?)?;
    make_tree(&other, others)?;
    let image = &Image {
        path,
        inodes: (files + files / FILES_PER_FOLDER + 1000).to_string(),
        engine: settings.engine.to_string(),
    };
    let image_bytes = files * 8192 + (256 << 20);
    write_out(&image.path, image_bytes, &writers::source(), &|| Ok(()))?;

    let mut variants = vec![
        Variant::new(CP, || image.cp("-r", &tree)),
        Variant::new(DEBUGFS, || image.debugfs(&script)),
        Variant::new(CP_A, || image.cp("-a", &other)),
    ];
    match may_mount() {
        true => variants.push(Variant::new(KERNEL, || image.kernel(&other))),
        false => outcome.note("the kernel's loop mount: skipped: it needs root and loop devices"),
    }
    outcome.measure(settings, 5, variants)?;
    ratios! { outcome;
        "cp -r / debugfs script, time" => "time", CP, DEBUGFS, at_most 0.5;
        "the kernel's cp -a and sync -f / cp -a, time" => "time", KERNEL, CP_A, at_least 1.5;
    }
    for ours in [CP, CP_A] {
        let peak_mib = outcome.most(ours, "peak memory");
        outcome.at_most(
            &format!("peak memory of {ours}, MiB"),
            peak_mib,
            MAX_MEMORY_MIB,
        );
    }
    outcome.count("files", files as f64);
    outcome.count("files of cp -a", others as f64);
    Ok(())
}

impl Image {
    fn make(&self) -> Result<()> {
        mkfs("ext4", &self.path, &["-N", &self.inodes])?;
        drop_cached(&self.path)
    }

    fn cp(&self, how: &str, tree: &Path) -> Result<Sample> {
        self.make()?;
        let (from, to) = (tree.to_string_lossy(), format!("{}:/", self.path.display()));
        let (spent, report) = own_cp(&["--engine", &self.engine, how, &from, &to])?;
        e2fsck(&self.path)?;
        Ok(vec![
            ("time", "s", spent.wall.as_secs_f64()),
            ("peak memory", "MiB", report.number("peak_memory_mib")),
        ])
    }

    fn debugfs(&self, script: &Path) -> Result<Sample> {
        self.make()?;
        let mut debugfs = named("debugfs");
        let (spent, _) = timed(debugfs.args(["-w", "-f"]).arg(script).arg(&self.path))?;
        Ok(vec![("time", "s", spent.wall.as_secs_f64())])
    }

    fn kernel(&self, tree: &Path) -> Result<Sample> {
        self.make()?;
        let mount = LoopMount::new(&self.path, "ext4", None)?;
        let mut cp = named("sh");
        cp.args(["-c", "cp -a \"$1\" \"$2\" && sync -f \"$2\"", "-"]);
        let (spent, _) = timed(cp.arg(tree).arg(mount.root().path("")))?;
        Ok(vec![("time", "s", spent.wall.as_secs_f64())])
    }
}

/// Creates the tree and returns the `debugfs` script that writes it.
fn make_tree(tree: &Path, files: u64) -> Result<String> {
    let mut random = fastrand::Rng::with_seed(50_000);
    let mut script = String::from("mkdir /tree\n");
    let mut content = vec![0u8; 8192];
    random.fill(&mut content);
    for number in 0..files {
        let folder = format!("d{:04}", number / FILES_PER_FOLDER);
        if number % FILES_PER_FOLDER == 0 {
            fs::create_dir_all(tree.join(&folder))?;
            let _ = writeln!(script, "mkdir /tree/{folder}");
        }
        let path = tree.join(&folder).join(format!("file-{number:06}"));
        fs::write(&path, &content[..random.usize(0..8192)])?;
        let from = path.display();
        let _ = writeln!(script, "write {from} /tree/{folder}/file-{number:06}");
    }
    Ok(script)
}
