//! `lab run` with job files of fio: every kind of target, cleanup, and the record. Figures are not judged.

mod ended;
mod fio;
mod kept;

use std::path::Path;

use throughline_lab::record::Record;
use throughline_testkit::program;

use crate::common::{fails, is_root, ok, run, str, tool, tools_are_missing};
use ended::assert_no_traces;

/// A small job.
const READS: &str = "[a]\nrw=randread\nsize=1m\n";

/// A directory with a job file.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// With this job; `None` without fio.
    fn new(job: &str) -> Option<Bench> {
        if !program::has(&["fio"]) {
            return None;
        }
        let bench = Bench {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::write(bench.path("work.fio"), job).unwrap();
        std::fs::create_dir(bench.path("made")).unwrap();
        Some(bench)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// The command line, with additional arguments.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let (file, out, made) = (
            self.path("work.fio"),
            self.path("out.jsonl"),
            self.path("made"),
        );
        let fixed = [
            "-q",
            "lab",
            "run",
            str(&file),
            "--out",
            str(&out),
            "--dir",
            str(&made),
        ];
        fixed.iter().chain(more).map(|&word| word.into()).collect()
    }

    /// Runs it and returns the record. Asserts that the directory for files is empty afterwards.
    #[track_caller]
    fn run(&self, more: &[&str]) -> Record {
        ok(self.arguments(more));
        self.assert_nothing_left();
        let record = Record::read(&self.path("out.jsonl")).unwrap();
        assert!(record.is_whole());
        record
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let left: Vec<_> = std::fs::read_dir(self.path("made")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn file_systems_made_for_the_run() {
    if tools_are_missing() {
        return;
    }
    let Some(bench) = Bench::new("[a]\nrw=write\nsize=1m\n") else {
        return;
    };
    if !is_root() {
        fails(bench.arguments(&["--target", "make:ext4"]), 1, "root");
        throughline_testkit::missing!("loop devices need root");
        return;
    }
    let fuse = Path::new("/dev/fuse").exists();
    let there = |program: &str| tool(program).arg("-V").output().is_ok();
    let kinds = [
        ("make:xfs", there("mkfs.xfs")),
        ("make:btrfs", there("mkfs.btrfs")),
        ("mount:", fuse),
        ("fuse2fs:", fuse && there("fuse2fs")),
    ];
    let mut targets = vec!["make:ext4?name=made&mount=noatime"];
    let mut names = vec!["made"];
    for (target, possible) in kinds {
        match possible {
            true => {
                targets.push(target);
                names.push(target);
            }
            false => throughline_testkit::missing!("{target}: its program or /dev/fuse is missing"),
        }
    }
    let arguments: Vec<&str> = targets
        .iter()
        .flat_map(|target| ["--target", target])
        .collect();
    let record = bench.run(&[&["--rounds", "2"], &arguments[..]].concat());
    let columns = record.columns();
    for name in names {
        let mut of_target = columns.iter().filter(|column| column.series == name);
        let throughput = of_target.find(|column| column.quantity == "throughput");
        assert_eq!(
            throughput.map(|column| column.samples.len()),
            Some(2),
            "{name}"
        );
    }
    assert_no_traces(bench.dir.path());
}

#[test]
fn wrong_files_and_targets_are_explained() {
    let Some(bench) = Bench::new(READS) else {
        return;
    };
    fails(bench.arguments(&[]), 1, "--target");
    for target in ["disk", "memory:"] {
        fails(bench.arguments(&["--target", target]), 2, "there are cmd:");
    }
    fails(
        ["lab", "run", "no-such.fio", "--target", "dir:/tmp"],
        1,
        "No such file",
    );
    fails(["lab", "run", "no-such"], 2, "ends in .fio");
    if Path::new("/dev/fuse").exists() {
        let words = ["--target", "mount:?size=1000P"];
        fails(bench.arguments(&words), 1, "no room");
        bench.assert_nothing_left();
    }
}

#[test]
fn the_record_goes_to_standard_output_when_asked() {
    let ran = run([
        "lab", "run", "--target", "cmd:true", "--rounds", "2", "--out", "-",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let record = Record::from_lines(&*ran.stdout).unwrap();
    assert_eq!(record.columns().len(), 2, "time and cpu");
}
