//! `cp` to targets other than files: the same bytes as from the tool of that name.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_testkit::kernel::Loop;
use throughline_testkit::program;

use crate::common::{Image, fails, noise, ok, throughline, tools_are_missing};
use crate::copy::str;

/// The bytes of a device before a copy.
const OLD: u8 = 0x5a;
const DEVICE_BYTES: usize = 24 << 20;
/// A copy to a fifo that nobody reads would wait for ever.
const LIMIT: Duration = Duration::from_secs(60);

/// A file of `len` bytes with data at these offsets.
fn sparse(path: &Path, len: u64, data: &[(u64, usize)]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    for (at, len) in data {
        file.write_all_at(&noise(*len, *at + 1), *at).unwrap();
    }
}

/// The bytes of the device after a copy by this program.
fn after(device: &Loop, program: &mut Command) -> Vec<u8> {
    fs::write(device.node(), vec![OLD; DEVICE_BYTES]).unwrap();
    let output = program.output().unwrap();
    assert!(output.status.success(), "{program:?}: {output:?}");
    assert_eq!(output.stderr, b"", "{program:?}");
    fs::read(device.node()).unwrap()
}

/// A device keeps its old bytes where nothing is written, and its length cannot be set.
#[test]
fn a_device_gets_zeroes_where_its_source_has_holes() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let below = image.sibling("device");
    fs::write(&below, vec![OLD; DEVICE_BYTES]).unwrap();
    let Some(device) = Loop::new(&below, &[]) else {
        return;
    };
    const MIB: u64 = 1 << 20;
    let source = image.sibling("source");
    for (name, len, data) in [
        (
            "between",
            20 * MIB + 7,
            &[(3 * MIB, 2 << 20), (17 * MIB, 5000)][..],
        ),
        ("all data", 3 * MIB, &[(0, 3 << 20)]),
        ("all hole", 9 * MIB + 512, &[]),
        ("small", 100_000, &[(40_000, 100)]),
        ("small hole", 5000, &[]),
        ("zero blocks", 12 * MIB, &[(0, 12 << 20)]),
    ] {
        sparse(&source, len, data);
        if name == "zero blocks" {
            let file = fs::File::options().write(true).open(&source).unwrap();
            file.write_all_at(&vec![0; 9 << 20], MIB).unwrap();
        }
        let mut expected = fs::read(&source).unwrap();
        expected.resize(DEVICE_BYTES, OLD);
        ok(["cp", str(&source), &image.at("/source")]);
        for sparse in ["--sparse=auto", "--sparse=always", "--sparse=never"] {
            let mut theirs = Command::new("cp");
            theirs.args([sparse, str(&source), device.node()]);
            assert!(
                after(&device, &mut theirs) == expected,
                "cp: {name} {sparse}"
            );
            for from in [str(&source), &image.at("/source")] {
                let mut ours = throughline();
                ours.args(["-q", "cp", sparse, from, device.node()]);
                let found = after(&device, &mut ours);
                assert!(found == expected, "{name}, {sparse}, from {from}");
            }
        }
    }
    // Neither data nor a hole goes past the end of the device.
    for data in [&[(0, 25 << 20)][..], &[]] {
        sparse(&source, 25 * MIB, data);
        let words = ["-q", "cp", str(&source), device.node()];
        fails(words, 1, "No space left on device");
    }
}

/// A reader that waits at a fifo gets all bytes. If the fifo were opened before, only to look at it, the
/// reader would see the end.
#[test]
fn the_reader_of_a_fifo_gets_the_whole_file() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (source, fifo) = (image.sibling("source"), image.sibling("fifo"));
    // The hole is read as zeroes.
    sparse(&source, 3 << 20 | 5, &[(0, 5000), (2 << 20, 70_000)]);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let expected = fs::read(&source).unwrap();
    ok(["cp", str(&source), &image.at("/source")]);
    for words in [
        &["cp", &image.at("/source"), str(&fifo)][..],
        &["-q", "cp", "--sparse=always", str(&source), str(&fifo)],
    ] {
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo).unwrap()
        });
        let ran = program::run(throughline().args(words), LIMIT);
        assert!(ran.status.success(), "{words:?}: {}", ran.stderr);
        assert!(reader.join().unwrap() == expected, "{words:?}");
    }
}
