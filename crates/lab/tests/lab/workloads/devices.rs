//! Block devices and device models as targets.

use std::path::Path;

use throughline_lab::record::{Line, Record};
use throughline_testkit::kernel::{Loop, Mount, may_use_loops};

use super::{Bench, assert_measured};
use crate::common::{Image, fails, run, tools_are_missing};

#[test]
fn block_devices_are_overwritten_when_asked_and_never_while_mounted() {
    if tools_are_missing() {
        return;
    }
    if !may_use_loops() {
        throughline_testkit::missing!("loop devices need root");
        return;
    }
    let image = Image::ext4();
    let device = Loop::new(&image.path(), &[]).unwrap();
    let targets = ["raw", "file"].map(|kind| format!("{kind}:{}", device.node()));
    let (writes, reads) = (
        Bench::new("pattern = \"random-write\"\ncache = \"direct\"\noffset = \"32M\""),
        Bench::new("pattern = \"random-read\""),
    );
    for target in &targets {
        fails(writes.arguments(&["--target", target]), 1, "--overwrite");
        assert_measured(&reads.run(&["--target", target]), &[target]);
        let written = writes.run(&["--overwrite", "--target", target]);
        assert_measured(&written, &[target]);
    }
    let point = image.sibling("mounted");
    std::fs::create_dir(&point).unwrap();
    let _mounted = Mount::new(Path::new(device.node()), &point, &[]).unwrap();
    for target in &targets {
        let refused = writes.arguments(&["--overwrite", "--target", target]);
        let ran = run(&refused);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("mounted") || ran.stderr.contains("in use"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn models_are_targets_and_verdicts_are_written_down() {
    let bench = Bench::new("pattern = \"sequential-write\"\ncache = \"direct\"");
    let model = "model:sata-disk";
    let record = bench.run(&["--target", "memory:", "--target", model]);
    assert_measured(&record, &["memory:", model]);
    let verdicts = |record: &Record| {
        let is_one =
            |line: &&Line| matches!(line, Line::Note { text } if text.starts_with("throughput of"));
        record.lines.iter().filter(is_one).count()
    };
    assert_eq!(verdicts(&record), 1);
    // Memory against a modelled disk: the answer is certain long before 200 rounds, except on an unusual
    // machine.
    let stopped = bench.run(&[
        "--target",
        "memory:",
        "--target",
        model,
        "--until-certain",
        "--rounds",
        "200",
    ]);
    assert_eq!(verdicts(&stopped), 1);
    let last = stopped.lines.last();
    assert!(
        matches!(last, Some(Line::End { why }) if why == "certain" || why == "rounds"),
        "{last:?}"
    );
    fails(
        bench.arguments(&[
            "--target",
            "memory:",
            "--target",
            model,
            "--quantity",
            "taste",
        ]),
        1,
        "there are cpu; cpu of the machine; operations",
    );
    fails(
        bench.arguments(&["--target", "memory:", "--until-certain"]),
        2,
        "two or more",
    );
}
