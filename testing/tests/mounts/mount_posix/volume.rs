//! Operations on the whole volume: free space, label, discard, shutdown.

use throughline_testing::pair::{Pair, Recipe};
use throughline_testing::program;

use crate::mount_posix::judge::{USUAL, answers, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn a_full_volume() {
    let recipe = Recipe {
        mke2fs: "-t ext4 -b 4096 -m 5 -N 256",
        size: "16M",
        options: "",
    };
    judge("a full volume", &recipe, FULL_CASES);
}

/// Who may use the blocks reserved for root, in each kind of call: alice and a group of bob's by options; by
/// default root, as the user 0 of the superblock, so that the kernel asks for no capability. What was stored
/// in a mapping and refused is removed, or the unmount would fail.
#[test]
fn the_reserve() {
    let made = "-t ext4 -b 4096 -I 256 -m 10 -N 256";
    for (options, cases) in [("resuid=1001,resgid=2000", RESERVE_CASES), ("", ROOT_CASES)] {
        let recipe = Recipe {
            mke2fs: made,
            size: "32M",
            options,
        };
        let Some(pair) = Pair::make(&recipe) else {
            return;
        };
        // How many blocks of mappings the large file has may differ, and with it the size.
        let wrong = answers(&pair, cases);
        assert!(
            wrong.is_empty(),
            "the reserve, {options}\n{}",
            wrong.join("\n")
        );
        pair.finish("the reserve");
    }
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

const RESERVE_CASES: &[Case] = &[case("reserve by options", BY_OPTIONS)];

const ROOT_CASES: &[Case] = &[case("reserve by default", BY_DEFAULT)];

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

const BY_OPTIONS: &str = "
    dave: open a full RDWR,CREATE 644
    dave: fill a
    dave: fsync a
    dave: run sh -c dd%20if=/dev/zero%20of=rest%20bs=4k%20conv=fsync%202>/dev/null;true
    dave: run sh -c dd%20if=/dev/zero%20of=more%20bs=4k%20conv=fsync%202>/dev/null;true
    dave: put dave-f x*4k
    dave: open d dave-d RDWR,CREATE,DIRECT 644
    dave: pwrite d 0 y*4096
    dave: open e dave-e RDWR,CREATE 644
    dave: fallocate e - 0 8k
    dave: fallocate e KEEP_SIZE 16k 8k
    dave: mkdir dave-dir 755
    dave: symlink x*100 dave-link
    dave: setxattr dave-f user.a x*2000
    dave: truncate dave-f 1M
    dave: creat dave-m 644
    dave: truncate dave-m 8k
    dave: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s dave-m
    dave: blocks dave-m
    dave: truncate dave-m 0
    bob: put bob-f x*4k
    bob: open d bob-d RDWR,CREATE,DIRECT 644
    bob: pwrite d 0 y*4096
    bob: open e bob-e RDWR,CREATE 644
    bob: fallocate e - 0 8k
    bob: fallocate e KEEP_SIZE 16k 8k
    bob: mkdir bob-dir 755
    bob: symlink x*100 bob-link
    bob: setxattr bob-f user.a x*2000
    bob: truncate bob-f 1M
    bob: creat bob-m 644
    bob: truncate bob-m 8k
    bob: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s bob-m
    bob: blocks bob-m
    bob: truncate bob-m 0
    alice: put alice-f x*4k
    alice: open d alice-d RDWR,CREATE,DIRECT 644
    alice: pwrite d 0 y*4096
    alice: open e alice-e RDWR,CREATE 644
    alice: fallocate e - 0 8k
    alice: fallocate e KEEP_SIZE 16k 8k
    alice: mkdir alice-dir 755
    alice: symlink x*100 alice-link
    alice: setxattr alice-f user.a x*2000
    alice: truncate alice-f 1M
    alice: creat alice-m 644
    alice: truncate alice-m 8k
    alice: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s alice-m
    alice: blocks alice-m
";

const BY_DEFAULT: &str = "
    dave: open a full RDWR,CREATE 644
    dave: fill a
    dave: fsync a
    dave: run sh -c dd%20if=/dev/zero%20of=rest%20bs=4k%20conv=fsync%202>/dev/null;true
    dave: run sh -c dd%20if=/dev/zero%20of=more%20bs=4k%20conv=fsync%202>/dev/null;true
    dave: put dave-f x*4k
    dave: open d dave-d RDWR,CREATE,DIRECT 644
    dave: pwrite d 0 y*4096
    dave: open e dave-e RDWR,CREATE 644
    dave: fallocate e - 0 8k
    dave: fallocate e KEEP_SIZE 16k 8k
    dave: mkdir dave-dir 755
    dave: symlink x*100 dave-link
    dave: setxattr dave-f user.a x*2000
    dave: truncate dave-f 1M
    dave: creat dave-m 644
    dave: truncate dave-m 8k
    dave: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s dave-m
    dave: blocks dave-m
    dave: truncate dave-m 0
    bob: put bob-f x*4k
    bob: open d bob-d RDWR,CREATE,DIRECT 644
    bob: pwrite d 0 y*4096
    bob: open e bob-e RDWR,CREATE 644
    bob: fallocate e - 0 8k
    bob: fallocate e KEEP_SIZE 16k 8k
    bob: mkdir bob-dir 755
    bob: symlink x*100 bob-link
    bob: setxattr bob-f user.a x*2000
    bob: truncate bob-f 1M
    bob: creat bob-m 644
    bob: truncate bob-m 8k
    bob: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s bob-m
    bob: blocks bob-m
    bob: truncate bob-m 0
    root: put root-f x*4k
    root: open d root-d RDWR,CREATE,DIRECT 644
    root: pwrite d 0 y*4096
    root: open e root-e RDWR,CREATE 644
    root: fallocate e - 0 8k
    root: fallocate e KEEP_SIZE 16k 8k
    root: mkdir root-dir 755
    root: symlink x*100 root-link
    root: setxattr root-f user.a x*2000
    root: truncate root-f 1M
    root: creat root-m 644
    root: truncate root-m 8k
    root: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s root-m
    root: blocks root-m
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
