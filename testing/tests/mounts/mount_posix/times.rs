//! Times: which calls change which.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn times() {
    judge("times", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("utimensat", UTIMES),
    case("times of files", OF_FILES),
    case("times of names", OF_NAMES),
    case("times of access", OF_ACCESS),
    case("far times", FAR),
];

const UTIMES: &str = "
    put f x
    utimes f 1.000000001 2.999999999
    times f
    utimes f omit 3.123456789
    times f
    utimes f 4.987654321 omit
    times f
    mark f
    utimes f omit omit
    since f
    utimes f now omit
    since f
    times f
    utimes f 5.000000000 6.000000000
    mark f
    utimes f omit now
    since f
    times f
    utimes f now now
    times f
    utimes f 0.000000000 0.000000000
    times f
    utimes f -1.000000000 -1.500000000
    times f
    utimes f 1.1000000000 1.000000000
    utimes f 1.-00000001 1.000000000
    symlink f l
    utimes l 7.000000000 8.000000000 SYMLINK_NOFOLLOW
    times l
    times f
    utimes l 9.000000000 10.000000000
    times f
    times l
    mkdir d 755
    utimes d 11.000000001 12.000000002
    times d
    open a f RDONLY
    futimes a 13.000000000 14.000000000
    times f
    unlink f
    futimes a 15.000000000 16.000000000
    mknod p fifo 600
    utimes p 17.000000000 18.000000000
    times p
    utimes none now now
    utimes l now now
";

const OF_FILES: &str = "
    put f abc
    open a f RDWR
    mark f
    write a x
    since f
    mark f
    write a ''
    since f
    mark f
    pwrite a 4k x
    since f
    mark f
    ftruncate a 10
    since f
    mark f
    ftruncate a 10
    since f
    mark f
    truncate f 10
    since f
    mark f
    truncate f 11
    since f
    mark f
    open t f WRONLY,TRUNC
    since f
    mark f
    open t f WRONLY,TRUNC
    since f
    mark f
    open t f RDWR,CREATE 644
    since f
    mark f
    chmod f 600
    since f
    mark f
    chown f 0 0
    since f
    mark f
    setxattr f user.a b
    since f
    mark f
    removexattr f user.a
    since f
    mark f
    fallocate a - 0 8k
    since f
    mark f
    fallocate a - 0 8k
    since f
    mark f
    fallocate a KEEP_SIZE 0 64k
    since f
    mark f
    fallocate a KEEP_SIZE,PUNCH_HOLE 0 4k
    since f
    mark f
    fallocate a ZERO_RANGE 0 4k
    since f
    pwrite a 0 x*32k
    mark f
    fsync a
    since f
    mark f
    close a
    since f
    mark f
    addflags f NODUMP
    since f
    put src source
    open s src RDONLY
    open c f RDWR
    mark f
    copy s 0 c 0 6
    since f
    mark f
    pwritev2 c 0 abc DSYNC
    since f
    open dir f WRONLY,DIRECT
    mark f
    pwrite dir 0 y*4096
    since f
";

const OF_NAMES: &str = "
    mkdir d 755
    mark d
    creat d/f 644
    since d
    mark d
    creat d/f 644
    since d
    mark d
    mark d/f
    link d/f d/g
    since d
    since d/f
    mark d
    mark d/f
    unlink d/g
    since d
    since d/f
    mark d
    mark d/f
    rename d/f d/g
    since d
    marked d/g d/f
    mark d
    mark d/g
    rename d/g d/h
    since d
    utimes d/h 1.000000000 2.000000000
    rename d/h d/i
    times d/i
    mkdir e 755
    mark d
    mark e
    mark d/i
    rename d/i e/i
    since d
    since e
    mark d
    mkdir d/sub 755
    since d
    mark d
    mark d/sub
    mark e
    rename d/sub e/sub
    since d
    since e
    mark e
    rmdir e/sub
    since e
    mark d
    symlink x d/l
    since d
    mark d
    mknod d/p fifo 600
    since d
    mark d
    unlink d/none
    since d
    mark d
    open t d RDWR,TMPFILE 600
    since d
    mark d
    linkfd t d/t
    since d
    mark d
    chmod d 700
    since d
    mark d
    open o d/t RDWR
    write o x
    since d
    mark d
    mark e
    put e/j x
    mark e/j
    mark d/t
    rename e/j d/t EXCHANGE
    since d
    since e
    put x 1
    put y 2
    mark x
    rename y x
    marked x y
    mark d
    rename d/p d/p2 NOREPLACE
    since d
    mark e
    rename none e/x
    since e
";

const OF_ACCESS: &str = "
    put f abcdef
    utimes f 1.000000000 2.000000000
    open a f RDONLY
    times f
    read a 3
    times f
    utimes f 2000000000.000000000 3.000000000
    mark f
    read a 3
    since f
    open n f RDONLY,NOATIME
    utimes f 1.000000000 2.000000000
    read n 6
    times f
    mkdir d 755
    creat d/x 644
    utimes d 1.000000000 2.000000000
    list d
    times d
    symlink x l
    utimes l 1.000000000 2.000000000 SYMLINK_NOFOLLOW
    readlink l
    times l
    utimes l 1.000000000 2.000000000 SYMLINK_NOFOLLOW
    stat l
    times l
    mknod p fifo 600
    open p p RDWR
    utimes p 1.000000000 2.000000000
    write p abc
    read p 3
    times p
    utimes p 1.000000000 2.000000000
    utimes f 1.000000000 2.000000000
    open r f RDONLY
    read r 0
    times f
    open z f RDONLY
    seek z end 0
    read z 10
    times f
    utimes f 1.000000000 2.000000000
    open w f RDWR
    mark f
    write w xyz
    since f
";

const FAR: &str = "
    creat f 644
    utimes f 2147483647.000000001 2147483648.000000002
    times f
    utimes f 4294967295.999999999 4294967296.000000000
    times f
    utimes f 15032385535.000000000 15032385534.999999999
    times f
    utimes f 15032385536.000000000 99999999999.000000000
    times f
    utimes f -2147483648.000000000 -2147483647.000000001
    times f
    utimes f -2147483649.000000000 -99999999999.000000000
    times f
    utimes f 9223372036854775807.000000000 -9223372036854775808.000000000
    times f
    mkdir d 755
    utimes d 4294967297.000000000 -5.000000000
    times d
";
