//! Valid job files are converted, and invalid ones are rejected.

use super::*;

fn one(text: &str) -> Imported {
    let mut all = fio(text).expect(text);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn a_job_becomes_a_workload() {
    let imported = one(
        "; mail server\n[global]\nbs=8k\ndirect=1\nioengine=libaio\nrandrepeat=0\n\n[mail box]\nrw=randrw\nrwmixread=70\nsize=64m\niodepth=16\nnumjobs=4\nruntime=30\ntime_based\nfsync=32\nnorandommap\ngtod_reduce=1\n",
    );
    let w = &imported.workload;
    assert_eq!(
        (w.name.as_str(), w.direction, w.random),
        ("mail-box", Direction::Mixed(70), true)
    );
    assert_eq!((w.block_bytes, w.size_bytes), (8192, 256 << 20));
    assert_eq!((w.threads, w.queue_depth, w.file_per_thread), (4, 16, true));
    assert_eq!(w.runtime, Some(Duration::from_secs(30)));
    assert!(w.time_based && w.direct);
    assert_eq!(w.sync, SyncPolicy::Every(32));
    assert_eq!(w.targets[0].to_string(), "dir:.");
    assert!(
        imported
            .left_out
            .iter()
            .any(|text| text == "line 18: gtod_reduce=1"),
        "{:?}",
        imported.left_out
    );
    assert!(imported.left_out[0].contains("libaio"));
    let again = Workload::parse(&imported.to_toml("a.fio")).expect("it is one");
    assert_eq!(*w, again);
}

#[test]
fn jobs_inherit_what_was_global_before_them() {
    let text = "[global]\nsize=1g\n[a]\nrw=write\n[global]\nbs=64k\n[b]\nrw=randwrite\nend_fsync=1\nfilename=/dev/x\nioengine=sync\niodepth=8\n";
    let all = fio(text).expect("they are some");
    let (a, b) = (&all[0], &all[1]);
    assert_eq!(
        (a.workload.block_bytes, b.workload.block_bytes),
        (4096, 65536)
    );
    assert_eq!(
        (a.workload.sync, b.workload.sync),
        (SyncPolicy::Never, SyncPolicy::End)
    );
    assert_eq!(
        (a.workload.layout, b.workload.layout),
        (Layout::Empty, Layout::Written)
    );
    assert_eq!(b.workload.targets[0].to_string(), "file:/dev/x");
    assert_eq!(b.workload.queue_depth, 1);
    assert!(a.left_out[0].starts_with("the other job of the file: "));
    assert!(b.left_out.iter().any(|text| text.contains("iodepth=8")));
}

/// The style of fio's own examples.
#[test]
fn comments_behind_values_ranges_and_pairs() {
    let imported = one(
        "[global]\nsize=512m\nbsrange=4k-4k\ntimeout=60\nnumjobs=4\t; 4 threads\nrwmixread=60\nrwmixwrite=40\n[f1] # one\nrw = randrw\nunlink=1\n",
    );
    let w = &imported.workload;
    assert_eq!((w.threads, w.block_bytes), (4, 4096));
    assert_eq!(w.direction, Direction::Mixed(60));
    assert_eq!(w.runtime, Some(Duration::from_secs(60)));
    assert_eq!(imported.left_out.len(), 1, "{:?}", imported.left_out);
    let ranged = one("[a]\nsize=1m\nbsrange=4k-16k\n");
    assert_eq!(ranged.workload.block_bytes, 4096);
    assert!(ranged.left_out[0].contains("bsrange=4k-16k"));
}

#[test]
fn sizes_are_fios() {
    for (text, size) in [
        ("4096", 4096),
        ("4k", 4096),
        ("4KB", 4096),
        ("4KiB", 4000),
        ("1M", 1 << 20),
        ("2g", 2 << 30),
    ] {
        assert_eq!(bytes(text), Some(size), "{text}");
    }
    for text in ["", "k", "4x", "-1", "99999999999p", "ib", "4 k"] {
        assert_eq!(bytes(text), None, "{text}");
    }
}

#[test]
fn invalid_job_files_are_explained() {
    for (text, expected) in [
        ("", "no job"),
        ("[global]\nbs=4k\n", "no job"),
        ("bs=4k\n", "line 1"),
        ("[a\n", "line 1"),
        ("[a]\n=4\n", "line 2"),
        ("[a]\n\u{0}\u{1}\n", "line 2"),
        ("[a]\nsize=${SIZE}\n", "line 2"),
        ("include other.fio\n", "line 1"),
        ("[a]\nrw=read\n", "no size"),
        ("[a]\nrw=trim\nsize=1m\n", "line 2"),
        ("[a]\nsize=20%\n", "percent"),
        ("[a]\nsize=lots\n", "line 2"),
        ("[a]\nsize=1m\nbs=0\n", "block"),
        ("[a]\nsize=1m\nbs=4k,8k\nrw=rw\n", "one block size"),
        (
            "[a]\nsize=1m\nnumjobs=99999999999999999999\n",
            "whole number",
        ),
        ("[a]\nsize=1m\nnumjobs=99999999999\n", "threads"),
        ("[a]\nsize=18446744073709551615\nnumjobs=3\n", "size"),
        ("[a]\nsize=1m\nruntime=soon\n", "runtime"),
        ("[a]\nsize=1m\nrw=rw\nrwmixread=101\n", "percent"),
    ] {
        let error = fio(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}
