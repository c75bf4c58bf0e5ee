//! Open files whose names are removed.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn descriptors() {
    judge("descriptors", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("unlinked while open", UNLINKED),
    case("renamed over while open", RENAMED_OVER),
    case("renamed while open", RENAMED),
    case("removed directories that are in use", REMOVED),
    case("modes that change while open", MODES),
    case("passed on to others", PROC),
];

const UNLINKED: &str = "
    open a f RDWR,CREATE 644
    write a hello
    unlink f
    fstat a
    stat f
    pread a 0 10
    pwrite a 5 more*10k
    fstat a
    ftruncate a 3
    fchmod a 600
    fchown a 1001 1001
    fstat a
    fsync a
    fallocate a - 0 1M
    fsetxattr a user.a b
    fgetxattr a user.a
    futimes a 1.000000000 2.000000000
    open b {fd:a} RDWR
    pread b 0 5
    open c {fd:a} RDONLY,TRUNC
    fstat b
    link {fd:a} again SYMLINK_FOLLOW
    linkfd a again
    put f new
    content f
    fstat a
    same f {fd:a}
    close a
    fstat b
    close b
    close c
    content f
    each 0 30 open h{i} g{i} RDWR,CREATE 644
    each 0 30 unlink g{i}
    each 0 30 write h{i} x*100k
    each 0 30 pread h{i} 99999 10
    each 0 30 close h{i}
    list .
    alice: open a f RDONLY
    unlink f
    alice: pread a 0 10
    alice: fstat a
    alice: open b {fd:a} RDONLY
    alice: open b {fd:a} RDWR
";

const RENAMED_OVER: &str = "
    put old oldold
    put new new
    open o old RDWR
    open n new RDWR
    rename new old
    fstat o
    fstat n
    pread o 0 10
    pread n 0 10
    content old
    same old {fd:n}
    pwrite o 0 x*8k
    pwrite n 0 NEW
    content old
    fsync o
    fsync n
    close o
    put a a
    put b b
    open a a RDWR
    open b b RDWR
    rename a b EXCHANGE
    same a {fd:b}
    same b {fd:a}
    write a 1
    write b 2
    content a
    content b
    put dst dst
    open d dst RDWR
    link dst dst2
    rename a dst
    fstat d
    content dst2
    content dst
    mkdir dd 755
    mkdir ee 755
    open dd dd RDONLY,DIRECTORY
    rename ee dd
    fstat dd
    stat dd
    alice: open x old RDONLY
    each 0 20 put t{i} v{i}
    each 0 20 rename t{i} old
    alice: pread x 0 10
    alice: fstat x
    content old
";

const RENAMED: &str = "
    mkdir d 755
    open a d/f RDWR,CREATE 644
    rename d/f g
    write a through
    content g
    rename d e
    rename g e/h
    fstat a
    pread a 0 10
    cd e
    rename ../e ../k
    creat in-here 644
    list ../k
    stat .
    cd ..
    open p k RDONLY,DIRECTORY
    rename k l
    fsync p
    fstat p
    stat {fd:p}/h
    content {fd:p}/h
    rename {fd:p}/h {fd:p}/i
    list l
    alice: cd l
    rename l m
    alice: list .
    alice: stat ../m
    alice: stat ../l
";

const REMOVED: &str = "
    mkdir d 777
    opendir s d
    cd d
    rmdir ../d
    stat .
    list .
    creat x 644
    mkdir x 755
    symlink x y
    link ../nothing z
    open t . RDWR,TMPFILE 644
    chmod . 700
    stat ..
    rest s
    seen s
    cd ..
    mkdir d 755
    stat d
    mkdir e 755
    creat e/f 644
    opendir s e
    unlink e/f
    rmdir e
    next s 10
    seen s
    closedir s
    mkdir g 777
    alice: cd g
    rmdir g
    alice: creat x 644
    alice: stat .
    mkdir g 777
    alice: list .
    list .
    put f x
    cd f
    open p f PATH
    unlink f
    fstat p
    open q {fd:p} RDONLY
    close p
";

const MODES: &str = "
    put f abc
    chmod f 666
    alice: open a f RDWR
    chmod f 000
    alice: read a 3
    alice: write a x
    alice: ftruncate a 2
    alice: open b f RDONLY
    alice: open b {fd:a} RDONLY
    alice: fstat a
    chown f 1002 1002
    alice: write a y
    alice: fchmod a 777
    bob: chmod f 400
    bob: open c f RDONLY
    bob: open c f WRONLY
    alice: write a z
    content f
    mkdir d 755
    put d/f x
    alice: open d d RDONLY,DIRECTORY
    alice: open e d/f RDONLY
    chmod d 700
    alice: pread e 0 1
    alice: opendir s {fd:d}
    alice: stat {fd:d}/f
    alice: fstat d
    open r f RDONLY
    bob: chmod f 000
    read r 10
";

const PROC: &str = "
    put f abcdef
    open a f RDONLY
    open b {fd:a} RDONLY
    read a 3
    seek b cur 0
    readlink none
    stat {fd:a}
    utimes {fd:a} 3.000000000 4.000000000
    times f
    chmod {fd:a} 600
    stat f
    truncate {fd:a} 2
    content {fd:a}
    setxattr {fd:a} user.p v
    getxattr f user.p
    link {fd:a} other SYMLINK_FOLLOW
    same f other
";
