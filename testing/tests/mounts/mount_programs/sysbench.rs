//! All modes of `sysbench fileio`, which verifies what it reads by checksums in its blocks (`--validate`).

use std::process::Command;

use crate::mount_programs::stage::{EXT2_1K, EXT4, Stage, amount, run};

const MODES: [&str; 6] = ["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"];

/// One mode, from creating its files to removing them.
fn play(stage: &Stage, mode: &str, extra: &[&str]) {
    for step in ["prepare", "run", "cleanup"] {
        // `seqwr` recreates its files, and no run may be limited by time here.
        let mut command = Command::new("sysbench");
        command
            .current_dir(stage.root())
            .args(["fileio", "--file-num=4", "--threads=2", "--time=0"])
            .arg(format!("--file-total-size={}M", amount(16, 512)))
            .arg(format!("--events={}", amount(800, 30_000)))
            .arg(format!("--file-test-mode={mode}"))
            .args(["--validate=on", "--file-fsync-freq=50"])
            .args(extra)
            .arg(step);
        run(&mut command);
    }
}

#[test]
fn all_modes() {
    let Some(stage) = Stage::new(EXT4, "1g", &["sysbench"]) else {
        return;
    };
    for mode in MODES {
        play(&stage, mode, &[]);
    }
    stage.finish();
}

#[test]
fn all_modes_in_other_ways() {
    let Some(stage) = Stage::new(EXT2_1K, "1g", &["sysbench"]) else {
        return;
    };
    let ways: [&[&str]; 3] = [
        &["--file-extra-flags=direct"],
        &["--file-io-mode=mmap"],
        &[
            "--file-extra-flags=dsync",
            "--file-block-size=4096",
            "--file-total-size=2M",
            "--events=200",
        ],
    ];
    for (index, mode) in MODES.iter().enumerate() {
        if crate::mount_programs::stage::soak() {
            ways.iter().for_each(|way| play(&stage, mode, way));
        } else {
            play(&stage, mode, ways[index % ways.len()]);
        }
    }
    stage.finish();
}
