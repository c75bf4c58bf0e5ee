//! Where a run's record goes, and what it contains about the command line.

use throughline_lab::record::Record;

use super::Bench;
use crate::common::{Image, fails, str, throughline, tools_are_missing};

/// An unwritable place is reported before the measurement, not after.
#[test]
fn an_unwritable_output_is_reported_before_measuring() {
    let bench = Bench::new("pattern = \"random-read\"");
    let made = bench.path("made");
    let nowhere = bench.path("no-such/out.jsonl");
    for name in ["founding/1", str(&bench.path("work.toml"))] {
        // The directory for files does not exist either, but that is not reported first.
        let arguments = ["lab", "run", name, "--dir", "/no/such/place"];
        let out = ["--out", str(&nowhere)];
        fails(
            arguments.iter().chain(&out),
            1,
            "no-such/out.jsonl': No such file",
        );
    }
    assert_eq!(std::fs::read_dir(made).unwrap().count(), 0);
}

#[test]
fn a_run_that_did_not_begin_leaves_no_file_and_no_empty_one() {
    let bench = Bench::new("pattern = \"random-read\"");
    let out = bench.path("out.jsonl");
    fails(bench.arguments(&["--target", "dir:/no/such"]), 1, "No such");
    assert!(!out.exists());
    bench.run(&["--target", "memory:", "--rounds", "1"]);
    let before = std::fs::read(&out).unwrap();
    fails(bench.arguments(&["--target", "dir:/no/such"]), 1, "No such");
    assert_eq!(std::fs::read(&out).unwrap(), before);
}

#[test]
fn runs_of_one_second_have_files_of_their_own() {
    let bench = Bench::new("pattern = \"random-read\"");
    let (file, made) = (bench.path("work.toml"), bench.path("made"));
    let started: Vec<_> = (0..4)
        .map(|_| {
            let arguments = ["-q", "lab", "run", str(&file), "--target", "memory:"];
            let mut command = throughline();
            command.args(arguments).current_dir(&made);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    let mut files = 0;
    for file in std::fs::read_dir(made).unwrap() {
        assert!(Record::read(&file.unwrap().path()).unwrap().is_whole());
        files += 1;
    }
    assert_eq!(files, 4);
}

/// The room is checked in advance, because otherwise the run would fill the disk before failing.
#[test]
fn a_file_for_which_there_is_no_room_is_not_begun() {
    let bench = Bench::new("pattern = \"random-read\"\noffset = \"1023P\"");
    let new = bench.path("made/new");
    for kind in ["raw", "file"] {
        let target = format!("{kind}:{}", new.display());
        fails(bench.arguments(&["--target", &target]), 1, "no room for");
        bench.assert_nothing_left();
    }
}

#[test]
fn options_of_the_engine_reach_its_targets_and_the_record() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let shifted = image.sibling("shifted");
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(std::fs::read(image.path()).unwrap());
    std::fs::write(&shifted, bytes).unwrap();
    let bench = Bench::new("pattern = \"random-write\"");
    let target = format!("image:{}", shifted.display());
    let more = ["--target", &target, "--target", "image:", "--offset", "1M"];
    let record = bench.run(&[&more[..], &["--bio-target", "64k"]].concat());
    let settings = &record.head.settings;
    assert_eq!(settings["offset"], "1048576");
    assert_eq!(settings["bio-target"], "65536");
    for label in [&target, "image:"] {
        let facts = &settings["targets"][label];
        assert_eq!(facts["bio target, bytes"], 65536, "{label}");
    }
    fails(
        bench.arguments(&["--target", "memory:", "--direct"]),
        2,
        "cache = \"direct\"",
    );
    fails(
        ["lab", "run", "cache/scan", "--cache", "8M"],
        2,
        "--cache applies to workload files only",
    );
    fails(
        ["lab", "founding", "--cache", "8M"],
        2,
        "--cache applies to workload files only",
    );
}
