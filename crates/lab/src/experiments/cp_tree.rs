//! `cp/tree`: a tree of 50,000 small files into an ext4 image, compared with a scripted `debugfs -w` of the
//! same tree.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{own_cp, timed};
use crate::interleave::Variant;
use crate::kernel::{e2fsck, mke2fs};
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings};

const FILES_PER_FOLDER: u64 = 100;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let [tree, image, script] = ["tree", "image", "script"].map(|name| scratch.path().join(name));
    let files = settings.scaled(50_000, 500);
    fs::write(&script, make_tree(&tree, files)?)?;
    let image_len = files * 8192 + (256 << 20);
    let inodes = (files + files / FILES_PER_FOLDER + 1000).to_string();
    let engine = settings.engine.to_string();

    let ours = || {
        mke2fs(&image, image_len, &["-t", "ext4", "-N", &inodes])?;
        let (from, to) = (tree.to_string_lossy(), format!("{}:/", image.display()));
        let (spent, report) = own_cp(&["--engine", &engine, "-r", &from, &to])?;
        e2fsck(&image)?;
        Ok(vec![
            ("time", "s", spent.wall.as_secs_f64()),
            ("peak memory", "MiB", report.number("peak_memory_mib")),
        ])
    };
    let debugfs = || {
        mke2fs(&image, image_len, &["-t", "ext4", "-N", &inodes])?;
        let mut debugfs = Command::new("debugfs");
        let (spent, _) = timed(debugfs.args(["-w", "-f"]).arg(&script).arg(&image))?;
        Ok(vec![("time", "s", spent.wall.as_secs_f64())])
    };
    let variants = [Variant::new("ours", ours), Variant::new("debugfs", debugfs)];
    outcome.measure(settings, 3, variants)?;
    ratios! { outcome;
        "cp -r / debugfs script, time" => "time", "ours", "debugfs", at_most 0.5;
    }
    let peak = outcome.most("ours", "peak memory");
    outcome.at_most("peak memory of cp -r, MiB", peak, 256.0);
    outcome.count("files", files as f64);
    Ok(())
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
