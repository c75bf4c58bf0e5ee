//! `cp` to targets other than files: the same bytes as from the tool of that name.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_testkit::kernel::Loop;
use throughline_testkit::program::{self, has};

use crate::common::{Image, fails, noise, ok, str, throughline, tools_are_missing};
use crate::is_static;

/// The bytes of a device before a copy.
const OLD: u8 = 0x5a;
const DEVICE_BYTES: usize = 24 << 20;
const MIB: u64 = 1 << 20;
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

/// A C library in which every close(2) of a file named `full` fails, as on NFS with a quota.
const FULL_AT_CLOSE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int close(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    int done = real(fd);
    if (len > 5 && memcmp(path + len - 5, "/full", 5) == 0) {
        errno = EDQUOT;
        return -1;
    }
    return done;
}
"#;

#[test]
fn an_error_of_close_is_an_error_of_the_copy() {
    if tools_are_missing() || !has(&["cc", "cp"]) || is_static() {
        return;
    }
    let image = Image::ext4();
    let (code, library) = (image.sibling("close.c"), image.sibling("close.so"));
    fs::write(&code, FULL_AT_CLOSE).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o", str(&library), str(&code), "-ldl"]);
    assert!(cc.status().unwrap().success());
    let (source, full) = (image.sibling("source"), image.sibling("full"));
    for len in [0, 1000, 5 << 20] {
        fs::write(&source, noise(len, 8)).unwrap();
        let place = image.at(&format!("/{len}"));
        ok(["cp", str(&source), &place]);
        let refused = |command: &mut Command| {
            let output = command.env("LD_PRELOAD", &library).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
            assert!(said.contains("quota exceeded"), "{command:?}: {said}");
        };
        refused(Command::new("cp").arg(&source).arg(&full));
        refused(throughline().arg("cp").arg(&place).arg(&full));
        refused(throughline().args(["-q", "cp"]).arg(&source).arg(&full));
        let to_full = || fs::File::create(&full).unwrap();
        refused(throughline().arg("cat").arg(&place).stdout(to_full()));
        refused(throughline().args(["cp", &place, "-"]).stdout(to_full()));
    }
}
