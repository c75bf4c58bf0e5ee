//! The results of `stat` and related calls.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn attributes() {
    judge("attributes", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("stat", STAT),
    case("statx", STATX),
    case("blocks", BLOCKS),
    case("statfs", STATFS),
];

const STAT: &str = "
    stat .
    put f abc
    stat f
    lstat f
    open a f RDONLY
    fstat a
    put f abcdef
    fstat a
    truncate f 100000
    fstat a
    unlink f
    fstat a
    stat f
    mkdir d 755
    stat d
    stat d/.
    stat d/..
    open b d RDONLY,DIRECTORY
    fstat b
    rmdir d
    fstat b
    symlink target s
    lstat s
    stat s
    mknod c char 600 5 1
    mknod e block 640 300 70000
    mknod p fifo 600
    mknod k socket 600
    stat c
    stat e
    stat p
    stat k
    open g . PATH
    fstat g
    stat none
    stat none/x
    stat c/x
    stat {x*256}
    stat {x/*3000}
";

const STATX: &str = "
    mark .
    put f abc
    statx f
    born f .
    mkdir d 755
    statx d
    born d .
    symlink t s
    statx s
    born s .
    mknod p fifo 600
    born p .
    marked f then
    put f longer
    truncate f 5
    chmod f 600
    utimes f 1.000000000 2.000000000
    born f .
    born f then
    addflags f IMMUTABLE,NODUMP
    statx f
    dropflags f IMMUTABLE
    addflags f APPEND
    statx f
    setflags f 0x80000
    statx f
    open t . RDWR,TMPFILE 600
    statx {fd:t}
    statx .
    statx none
    statx ..
";

const BLOCKS: &str = "
    put f abc
    open a f RDWR
    fsync a
    blocks f
    pwrite a 0 x*1M
    fsync a
    blocks f
    fallocate a KEEP_SIZE 1M 1M
    blocks f
    ftruncate a 4k
    blocks f
    ftruncate a 1G
    blocks f
    pwrite a 512M y
    fsync a
    blocks f
    fallocate a KEEP_SIZE,PUNCH_HOLE 0 4k
    blocks f
    ftruncate a 0
    blocks f
    creat empty 644
    blocks empty
    mkdir d 755
    blocks d
    symlink {x*59} fast
    blocks fast
    symlink {x*60} slow
    blocks slow
    mknod p fifo 600
    blocks p
    setxattr p user.x y
    setxattr empty user.big x*3000
    blocks empty
    removexattr empty user.big
    blocks empty
    open s sparse RDWR,CREATE 644
    pwrite s 100k x
    pwrite s 300k x
    pwrite s 500k x
    fsync s
    blocks sparse
";

const STATFS: &str = "
    statfs .
    put f x
    statfs f
    symlink f l
    statfs l
    statfs none
    alice: statfs .
    statfs ..
";
