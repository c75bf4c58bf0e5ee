//! fio writes self-describing patterns and verifies them.

use std::process::Command;

use crate::mount_programs::stage::{EXT2_1K, EXT3, EXT4, NO_JOURNAL, Stage, amount, run};

/// Options of all jobs: each block is verified, and the first bad one ends the job.
const COMMON: &str = "--verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --randrepeat=1 \
    --fallocate=none --group_reporting=1 --bs=4k";

/// Runs jobs, given as arguments separated by blanks.
#[track_caller]
fn fio(stage: &Stage, jobs: &str) {
    let directory = format!("--directory={}", stage.name("/"));
    let mut command = Command::new("fio");
    command
        .current_dir(stage.sibling(""))
        .arg(directory)
        .args(COMMON.split_whitespace())
        .args(jobs.split_whitespace());
    run(&mut command);
}

/// Whether fio works without a system call that containers often forbid.
fn has_io_uring(stage: &Stage) -> bool {
    let file = stage.sibling("probe").display().to_string();
    let probe = format!("--name=probe --filename={file} --size=4k --rw=write --ioengine=io_uring");
    let mut command = Command::new("fio");
    command.args(probe.split_whitespace());
    let ran = throughline_testing::program::run(&mut command, std::time::Duration::from_secs(60));
    if !ran.status.success() {
        throughline_testkit::left_out!("fio with io_uring, which this system refuses");
    }
    ran.status.success()
}

#[test]
fn streams() {
    for recipe in [EXT2_1K, EXT4] {
        let Some(stage) = Stage::new(recipe, "2g", &["fio"]) else {
            return;
        };
        let size = amount(16, 256);
        fio(
            &stage,
            &format!("--name=buffered --size={size}m --rw=write --bs=1m --end_fsync=1"),
        );
        fio(
            &stage,
            &format!("--name=odd --size={size}m --rw=write --bs=12345"),
        );
        fio(
            &stage,
            &format!("--name=direct --size={size}m --rw=write --bs=512k --direct=1"),
        );
        fio(
            &stage,
            &format!("--name=over --size={size}m --rw=rw --bs=64k --loops=2"),
        );
        stage.finish();
    }
}

#[test]
fn random_places() {
    let Some(stage) = Stage::new(EXT3, "2g", &["fio"]) else {
        return;
    };
    let size = amount(8, 128);
    fio(
        &stage,
        &format!("--name=buffered --size={size}m --rw=randwrite"),
    );
    fio(
        &stage,
        &format!("--name=both --size={size}m --rw=randrw --bsrange=1k-64k --bs_unaligned=1"),
    );
    fio(
        &stage,
        &format!("--name=direct --size={size}m --rw=randrw --direct=1"),
    );
    fio(
        &stage,
        &format!("--name=threads --size={size}m --rw=randrw --numjobs=4 --thread --fsync=64"),
    );
    stage.finish();
}

/// Concurrent direct and buffered writers and readers of one file, each in its own part. (fio's `mmap` engine
/// uses the first part whatever its `offset`.)
#[test]
fn direct_and_buffered_on_one_file() {
    let Some(stage) = Stage::new(EXT4, "512m", &["fio"]) else {
        return;
    };
    let size = amount(4, 64);
    let [second, third] = [size, 2 * size];
    // Otherwise each job would lay out the file, over what the others have written.
    let shared = std::fs::File::create(stage.path("/shared"));
    shared
        .and_then(|file| file.set_len((3 * size) << 20))
        .expect("a file of holes");
    let jobs = format!(
        "--filename=shared --size={size}m --rw=randrw \
         --name=mapped --ioengine=mmap \
         --name=buffered --ioengine=psync --offset={second}m \
         --name=direct --ioengine=psync --offset={third}m --direct=1"
    );
    fio(&stage, &jobs);
    // Once more over the existing data.
    fio(&stage, &jobs);
    stage.finish();
}

#[test]
fn mapped_and_in_rings() {
    let Some(stage) = Stage::new(NO_JOURNAL, "512m", &["fio"]) else {
        return;
    };
    let size = amount(8, 64);
    fio(
        &stage,
        &format!("--name=mapped --size={size}m --rw=randrw --ioengine=mmap --fsync=256"),
    );
    fio(
        &stage,
        &format!("--name=mapped-stream --size={size}m --rw=write --bs=64k --ioengine=mmap"),
    );
    if has_io_uring(&stage) {
        let ring = "--ioengine=io_uring --iodepth=16";
        fio(
            &stage,
            &format!("--name=ring --size={size}m --rw=randrw {ring}"),
        );
        fio(
            &stage,
            &format!("--name=ring-direct --size={size}m --rw=randrw --direct=1 {ring}"),
        );
    }
    stage.finish();
}

#[test]
fn synchronous() {
    let Some(stage) = Stage::new(EXT4, "256m", &["fio"]) else {
        return;
    };
    let size = amount(512, 16 << 10);
    fio(
        &stage,
        &format!("--name=o-sync --size={size}k --rw=randrw --sync=1"),
    );
    fio(
        &stage,
        &format!("--name=o-dsync --size={size}k --rw=write --sync=dsync"),
    );
    fio(
        &stage,
        &format!("--name=direct --size={size}k --rw=write --sync=1 --direct=1"),
    );
    fio(
        &stage,
        &format!("--name=fdatasync --size={size}k --rw=randwrite --fdatasync=1"),
    );
    stage.finish();
}
