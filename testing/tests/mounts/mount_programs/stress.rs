//! stress-ng's file-system stressors: unusual calls and orders of calls, checked by stress-ng (`--verify`),
//! limited by the number of operations instead of time.

use std::process::Command;
use std::time::Duration;

use throughline_testing::program;

use crate::mount_programs::stage::{EXT3, EXT4, Stage, amount, soak};

/// Stressors that end soon and never call `sync(2)`, which waits for every file system of the machine.
/// Without `seek`, which takes the ENXIO of SEEK_DATA past the last data for an error, on every file system.
const SHORT: &str = "access chmod chown copy-file dentry dir dirdeep dirmany fcntl file-ioctl filename flock \
    fstat getdent hdd lease locka lockf lockofd msync readahead rename sendfile splice utime xattr aio revio";
/// Stressors that take minutes or call `sync(2)`.
const LONG: &str =
    "fallocate chdir fpunch inode-flags iomix link mmap open symlink sync-file touch";
/// Small files: the default size is a GiB.
const SIZES: &str = "--hdd-bytes 4m --copy-file-bytes 128m --fallocate-bytes 8m --readahead-bytes 4m \
    --revio-bytes 4m --msync-bytes 4m --sendfile-size 1m --splice-bytes 64k --dentries 64 \
    --dirdeep-inodes 500 --aio-requests 16 --iomix-bytes 16m --sync-file-bytes 16m";

/// Time limit of one run; the long ones take minutes each.
const LIMIT: Duration = Duration::from_secs(1800);
/// Exit status of stress-ng if a stressor lacks a resource.
const LACKS: i32 = 3;

/// `operations` of each of the stressors.
fn play(stage: &Stage, stressors: &[&str], operations: u64) {
    let mut command = Command::new("stress-ng");
    for name in stressors {
        command.args([format!("--{name}"), "1".to_owned()]);
        command.args([format!("--{name}-ops"), operations.to_string()]);
    }
    command
        .current_dir(stage.sibling(""))
        .args(SIZES.split_whitespace())
        .args(["--no-rand-seed", "--verify", "--temp-path"])
        .arg(stage.root());
    let ran = program::run(&mut command, LIMIT);
    if ran.status.code() == Some(LACKS) {
        throughline_testkit::left_out!("in part: {}", ran.stdout + &ran.stderr);
    } else {
        ran.good(&format!("{stressors:?}"));
    }
}

fn stage(recipe: &'static str) -> Option<Stage> {
    Stage::new(recipe, "1g", &["stress-ng"])
}

#[test]
fn one_after_another() {
    let Some(stage) = stage(EXT4) else { return };
    for name in SHORT.split_whitespace() {
        play(&stage, &[name], amount(20, 2000));
    }
    if soak() {
        for name in LONG.split_whitespace() {
            play(&stage, &[name], 20);
        }
    }
    stage.finish();
}

#[test]
fn all_at_once() {
    let Some(stage) = stage(EXT3) else { return };
    let names: Vec<&str> = SHORT.split_whitespace().collect();
    play(&stage, &names, amount(100, 2000));
    stage.finish();
}
