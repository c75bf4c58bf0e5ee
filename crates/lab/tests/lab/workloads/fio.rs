//! Jobs of fio, run by fio on every kind of target that has a path.

use std::path::Path;

use throughline_lab::record::{Line, Record};
use throughline_testkit::kernel::may_use_loops;

use super::Bench;
use crate::common::{fails, ok, run, str, tools_are_missing};

const JOB: &str = "; as in fio's own examples\n[global]\nbs=4k\nsize=256k\n\n[readers]\nrw=randread\n\
    numjobs=2\n[writer]\nstonewall\nrw=write\nfsync=16\nfilename=sub\\:file\n";

/// Whether our mount is possible here.
fn may_mount() -> bool {
    let fuse = Path::new("/dev/fuse").exists();
    if !fuse {
        throughline_testkit::missing!("/dev/fuse is missing");
    }
    fuse && !tools_are_missing()
}

#[track_caller]
fn assert_measured(record: &Record, target: &str) {
    let columns = record.columns();
    for quantity in [
        "throughput",
        "operations",
        "readers: throughput",
        "readers: read, median",
        "writer: write, 99th percentile",
        "writer: sync, median",
    ] {
        let found = columns
            .iter()
            .find(|c| c.series == target && c.quantity == quantity);
        let found = found.unwrap_or_else(|| panic!("{target}: no {quantity}: {columns:?}"));
        assert_eq!(found.samples.len(), 2, "{target}: {quantity}");
        assert!(found.values().iter().all(|value| *value > 0.0));
    }
    let has_curve = |line: &Line| matches!(line, Line::Latencies(of) if of.series == target);
    assert!(record.lines.iter().any(has_curve), "{target}");
}

#[test]
fn a_job_runs_on_every_target_with_a_path_and_leaves_nothing() {
    let Some(bench) = Bench::new(JOB) else { return };
    let own = bench.path("own: dir");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("kept"), "kept").unwrap();
    let dir = format!("dir:{}", own.display());
    let mut targets = vec![&*dir, "dir:/tmp"];
    if may_mount() {
        targets.push("mount:?size=4m");
    }
    match may_use_loops() {
        true => targets.push("make:ext4"),
        false => throughline_testkit::missing!("loop devices need root"),
    }
    let words = targets.iter().flat_map(|target| ["--target", target]);
    let words: Vec<&str> = ["--rounds", "2"].into_iter().chain(words).collect();
    let record = bench.run(&words);
    for target in &targets {
        assert_measured(&record, target);
    }
    let left = std::fs::read_dir(&own).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kept"]);
    let out = bench.path("out.jsonl");
    let series = ["--base-series", &*dir, "--new-series", "dir:/tmp"];
    let compared = ok(["lab", "compare", str(&out)].iter().chain(&series));
    assert!(compared.contains("writer: write, median"), "{compared}");
    let page = ok(["lab", "report", str(&out), "--output", "-"]);
    assert!(page.contains("readers: read"), "{page}");
}

#[test]
fn a_job_file_is_compared_on_two_targets() {
    let Some(bench) = Bench::new("[a]\nrw=randread\nsize=1m\n") else {
        return;
    };
    let (job, out) = (bench.path("work.fio"), bench.path("out.jsonl"));
    let limit = ["lab", "gate", "dir:/tmp?name=a", "dir:/tmp?name=b"];
    let more = [
        "--workload",
        str(&job),
        "--max-regression",
        "100",
        "--rounds",
        "2",
    ];
    let ran = run(limit.iter().chain(&more).chain(&["--out", str(&out)]));
    assert_eq!(
        ran.code,
        Some(2),
        "two rounds prove nothing: {}",
        ran.stderr
    );
    let table = String::from_utf8_lossy(&ran.stdout);
    assert!(table.contains("throughput"), "{table}");
}

#[test]
fn a_job_that_cannot_run_there_is_refused_with_what_to_use() {
    let Some(bench) = Bench::new(JOB) else { return };
    let file = bench.path("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let on_file = format!("file:{}", file.display());
    for (target, expected) in [
        ("cmd:true", "without a job file"),
        ("dir:/no/such", "/no/such"),
        ("file:/no/such", "/no/such"),
        (&*on_file, "leave it out"),
    ] {
        fails(bench.arguments(&["--target", target]), 1, expected);
        bench.assert_nothing_left();
    }
    fails(bench.arguments(&[]), 1, "no target");
    let write = |text: &str| std::fs::write(bench.path("work.fio"), text).unwrap();
    for (job, expected) in [
        ("[a]\nrw=nope\nsize=1m\n", "failed parsing rw=nope"),
        ("[a]\nrw=write\nsize=1m\nfilename=/tmp/x\n", "leads outside"),
        (
            "[global]\ndirectory=/tmp\n[a]\nrw=write\nsize=1m\n",
            "says where it runs",
        ),
        ("[a]\nrw=read\n", "ended with 1"),
    ] {
        write(job);
        fails(bench.arguments(&["--target", "dir:/tmp"]), 1, expected);
    }
    // Without --overwrite, fio itself refuses to write.
    write("[a]\nrw=write\nsize=1m\n");
    fails(bench.arguments(&["--target", &on_file]), 1, "--overwrite");
    assert_eq!(std::fs::read(&file).unwrap(), vec![7; 1 << 20]);
    bench.run(&["--target", &on_file, "--rounds", "1", "--overwrite"]);
    assert_ne!(std::fs::read(&file).unwrap(), vec![7; 1 << 20]);
    write("[a]\nrw=randread\nsize=1m\n");
    bench.run(&["--target", &on_file, "--rounds", "1"]);
}

#[test]
fn a_full_file_system_is_explained() {
    let Some(bench) = Bench::new("[a]\nrw=write\nsize=400m\n") else {
        return;
    };
    if !may_mount() {
        return;
    }
    let words = ["--target", "mount:?size=1m", "--rounds", "1"];
    fails(bench.arguments(&words), 1, "No space left on device");
    fails(bench.arguments(&words), 1, "?size=8G");
}
