//! Link counts of files and directories, and their limits.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn links() {
    judge("links", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("hard links", HARD_LINKS),
    case("hard links of others' files", OTHERS_FILES),
    case("maximum link counts", MAX_LINKS),
    case("more subdirectories than can be counted", MAX_DIRECTORIES),
];

const HARD_LINKS: &str = "
    put a abc
    link a b
    same a b
    stat a
    mark a
    mark .
    link a c
    since a
    since .
    mark a
    mark .
    unlink b
    since a
    since .
    stat c
    link a c
    link none x
    link a none/x
    link a c/x
    mkdir d 755
    link d e
    link a d
    link a d/a
    stat d/a
    unlink a
    unlink c
    stat d/a
    content d/a
    symlink d/a s
    link s t
    lstat s
    readlink t
    mknod p fifo 644
    link p q
    stat q
    mknod n char 600 1 3
    link n o
    stat o
    unlink p
    unlink n
    stat q
    stat o
    list .
";

const OTHERS_FILES: &str = "
    put f root
    chmod f 644
    put setuid x
    chmod setuid 4755
    put writable x
    chmod writable 666
    put closed x
    chmod closed 600
    alice: link f f2
    alice: link setuid s2
    alice: link writable w2
    alice: link closed c2
    mkdir d 711
    put d/f x
    alice: link d/f f3
    alice: link f3 d/g
    chmod d 700
    alice: link d/f f4
    alice: link f d/x
    list .
    alice: put mine x
    bob: link mine his
    alice: chmod mine 400
    bob: link mine his2
    bob: unlink his
    chmod . 1777
    bob: unlink mine
    bob: link f f9
    bob: unlink f9
    list .
";

const MAX_LINKS: &str = "
    creat f 644
    mkdir d 755
    each 1 65002 link f d/{i}
    stat f
    link f one-more
    rename d/1 d/2
    rename d/3 d/4 NOREPLACE
    stat f
    count d
    each 1 65002 unlink d/{i}
    stat f
    count d
    link f two
    stat f
    rmdir d
";

const MAX_DIRECTORIES: &str = "
    mkdir d 755
    each 0 300 mkdir d/{i} 755
    stat d
    count d
    each 0 300 rmdir d/{i}
    stat d
    rmdir d
";
