//! Where a run's record goes, and what it contains about the command line.

use throughline_lab::record::Record;

use super::{Bench, READS};
use crate::common::{fails, str, throughline};

/// An unwritable place is reported before the measurement, not after.
#[test]
fn an_unwritable_output_is_reported_before_measuring() {
    let Some(bench) = Bench::new(READS) else {
        return;
    };
    let made = bench.path("made");
    let nowhere = bench.path("no-such/out.jsonl");
    for name in ["founding/1", str(&bench.path("work.fio"))] {
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
    let Some(bench) = Bench::new(READS) else {
        return;
    };
    let out = bench.path("out.jsonl");
    fails(bench.arguments(&["--target", "dir:/no/such"]), 1, "No such");
    assert!(!out.exists());
    bench.run(&["--target", "dir:/tmp", "--rounds", "1"]);
    let before = std::fs::read(&out).unwrap();
    fails(bench.arguments(&["--target", "dir:/no/such"]), 1, "No such");
    assert_eq!(std::fs::read(&out).unwrap(), before);
}

#[test]
fn runs_of_one_second_have_files_of_their_own() {
    let made = tempfile::tempdir().unwrap();
    let started: Vec<_> = (0..4)
        .map(|_| {
            let arguments = ["-q", "lab", "run", "--rounds", "2", "--target", "cmd:true"];
            let mut command = throughline();
            command.args(arguments).current_dir(made.path());
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    let mut files = 0;
    for file in std::fs::read_dir(made.path()).unwrap() {
        assert!(Record::read(&file.unwrap().path()).unwrap().is_whole());
        files += 1;
    }
    assert_eq!(files, 4);
}

#[test]
fn options_of_the_engine_are_refused() {
    for words in [&["run", "cache/hit"][..], &["founding"]] {
        let words = ["lab"].iter().chain(words).chain(&["--cache", "8M"]);
        fails(words, 2, "--cache has no effect here");
    }
}
