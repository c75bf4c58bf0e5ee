//! Operations on the whole volume: free space, label, discard, shutdown.

use throughline_testing::pair::{Pair, Recipe};
use throughline_testing::program;

use crate::judge::{USUAL, answers, judge};
use crate::script::{Case, case};

#[test]
fn a_full_volume() {
    let recipe = Recipe {
        mke2fs: "-t ext4 -b 4096 -m 5 -N 256",
        size: "16M",
        options: "",
    };
    judge("a full volume", &recipe, FULL_CASES);
}

#[test]
fn label_and_discard() {
    judge("label and discard", &USUAL, WHOLE_CASES);
}

/// One pair per mode: a volume that was shut down is not compared further.
#[test]
fn shutdown() {
    if !program::has(&["xfs_io"]) {
        return;
    }
    for cases in SHUTDOWN_CASES {
        let Some(pair) = Pair::make(&USUAL) else {
            return;
        };
        let wrong = answers(&pair, std::slice::from_ref(cases));
        assert!(wrong.is_empty(), "shutdown\n{}", wrong.join("\n"));
    }
}

const FULL_CASES: &[Case] = &[case("no inodes", NO_INODES), case("no space", NO_ROOM)];

const WHOLE_CASES: &[Case] = &[case("label", LABEL), case("discard", DISCARD)];

const SHUTDOWN_CASES: &[Case] = &[
    case("shutdown at once", AT_ONCE),
    case("shutdown after the journal", AFTER_THE_JOURNAL),
    case("shutdown after everything", AFTER_EVERYTHING),
];

/// When an inode without names becomes free is not compared: it happens after the call, by FORGET.
const NO_INODES: &str = "
    mkdir d 755
    each 0 400 creat d/f{i} 644
    mkdir d/s 755
    symlink x d/l
    mknod d/p fifo 600
    open t d RDWR,TMPFILE 600
    link d/f1 d/again
    rename d/f1 d/other
    put d/f3 data
    content d/f3
    run rm -r d
    count .
";

const NO_ROOM: &str = "
    open a f RDWR,CREATE 644
    fallocate a - 0 64M
    ftruncate a 0
    fallocate a KEEP_SIZE 0 64M
    ftruncate a 0
    fill a
    fsync a
    pread a 0 5
    creat g 644
    open b g RDWR
    fill b
    pwrite a 0 z*4096
    pread a 0 5
    fsync a
    open d f RDWR,DIRECT
    pwrite d 4096 y*4096
    ftruncate a 4M
    fsync a
    pwrite b 0 y*64k
    fsync b
    pread b 65530 6
    stat f
    alice: open a mine RDWR,CREATE 644
    alice: fallocate a - 0 64M
    alice: ftruncate a 0
    alice: fill a
    alice: fsync a
    run rm -f mine f g
    mkdir d 755
    run rm -r d
";

const LABEL: &str = "
    run xfs_io -r -c label .
    run xfs_io -r -c label%20-s%20named .
    run xfs_io -r -c label .
    run xfs_io -r -c label%20-s%20{x*16} .
    run xfs_io -r -c label .
    run xfs_io -r -c label%20-s%20{x*17} .
    alice: run xfs_io -r -c label .
    alice: run xfs_io -r -c label%20-s%20hers .
    run xfs_io -r -c label%20-c .
    run xfs_io -r -c label .
";

const DISCARD: &str = "
    put f x*1M
    run fstrim .
    content f
    unlink f
    run fstrim -m%201M .
    alice: run fstrim .
    put f x
    run fstrim f
    run fstrim -o%200%20-l%2016M .
";

const AT_ONCE: &str = "
    put f before
    open a f RDWR
    fsync a
    opendir s .
    alice: run xfs_io -r -c shutdown .
    put still x
    run xfs_io -x -c shutdown .
    put g x
    pwrite a 0 x
    mkdir d 755
    unlink f
    rename f g
    chmod f 600
    fsync a
    stat f
    statfs .
    setxattr f user.a x
    symlink x l
    run xfs_io -x -c shutdown .
";

const AFTER_THE_JOURNAL: &str = "
    put f before
    open a f RDWR
    run xfs_io -x -c shutdown%20-f .
    put g x
    pwrite a 0 x
    mkdir d 755
    fsync a
    unlink f
";

const AFTER_EVERYTHING: &str = "
    put f before
    open a f RDWR
    run xfs_io -x -c shutdown%20-f .
    put g x
    mkdir d 755
    fsync a
";
