//! Inode flags: what `lsattr` and `chattr` show and change, and what they forbid.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn flags() {
    judge("flags", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("flags shown and changed", FLAGS),
    case("immutable", IMMUTABLE),
    case("append only", APPEND),
    case("rights to flags", RIGHTS),
    case("flags that are inherited", INHERITED),
    case("flags of xfs", XFS),
];

const FLAGS: &str = "
    put f x
    flags f
    mkdir d 755
    flags d
    flags .
    addflags f NODUMP
    flags f
    addflags f NOATIME,SYNC
    flags f
    setflags f 0x80000
    flags f
    setflags f 0x80040
    flags f
    addflags f DIRSYNC
    addflags d DIRSYNC,TOPDIR
    flags d
    addflags f TOPDIR
    addflags f 0x4
    addflags f 0x800
    addflags f 0x10000000
    addflags f 0x40000000
    addflags d 0x40000000
    addflags f 0x20000000
    flags f
    mark f
    addflags f NODUMP
    since f
    run lsattr -d d
    run lsattr f
    run chattr +A f
    run lsattr f
    run chattr -d -A f
    run lsattr f
    run chattr -v 77 f
    symlink f l
    run lsattr -d l
    mknod p fifo 600
    flags p
    mknod c char 600 1 3
    flags none
    utimes f 1.000000000 2.000000000
    addflags f NOATIME
    open a f RDONLY
    read a 1
    times f
";

const IMMUTABLE: &str = "
    put f abc
    open w f RDWR
    setxattr f user.a 1
    mark f
    addflags f IMMUTABLE
    since f
    flags f
    open a f WRONLY
    open a f RDWR
    open a f RDONLY,TRUNC
    open a f RDONLY
    read a 3
    write w x
    pwrite w 0 x
    truncate f 0
    ftruncate w 0
    fallocate w - 0 8k
    chmod f 600
    fchmod w 600
    chown f 1 1
    chown f - -
    utimes f now now
    utimes f 1.000000000 2.000000000
    utimes f omit now
    utimes f omit omit
    unlink f
    rename f g
    link f g
    creat x 644
    rename x f
    rename f x EXCHANGE
    setxattr f user.a 2
    removexattr f user.a
    getxattr f user.a
    access f w
    access f r
    alice: access f w
    content f
    stat f
    fsync w
    addflags f NODUMP
    dropflags f IMMUTABLE
    write w x
    content f
    mkdir d 755
    creat d/f 644
    mkdir d/s 755
    addflags d IMMUTABLE
    creat d/g 644
    unlink d/f
    rename d/f h
    rename d/f d/h
    rename x d/x
    mkdir d/t 755
    rmdir d/s
    rmdir d
    rename d e
    symlink x d/l
    mknod d/p fifo 600
    link x d/x
    open t d RDWR,TMPFILE 600
    put d/f new
    content d/f
    chmod d/f 600
    list d
    chmod d 700
    access d w
    dropflags d IMMUTABLE
    creat d/g 644
    symlink f l
    unlink d/f
    list d
    addflags x IMMUTABLE
    rename x y
    link x y
    dropflags x IMMUTABLE
";

const APPEND: &str = "
    put f abc
    open w f RDWR
    addflags f APPEND
    open a f WRONLY
    open a f RDWR
    open a f WRONLY,APPEND,TRUNC
    open a f RDONLY,TRUNC
    open a f WRONLY,APPEND
    write a def
    pwrite a 0 x
    setfl a 0x0
    getfl a
    write w y
    pwrite w 0 z
    content f
    truncate f 0
    truncate f 100
    ftruncate w 0
    ftruncate a 0
    fallocate a - 0 8k
    chmod f 600
    chown f 1 1
    utimes f now now
    utimes f 1.000000000 2.000000000
    unlink f
    rename f g
    link f g
    setxattr f user.a 1
    removexattr f user.a
    creat x 644
    rename x f
    access f w
    content f
    dropflags f APPEND
    ftruncate w 2
    mkdir d 755
    creat d/f 644
    addflags d APPEND
    creat d/g 644
    put d/g x
    unlink d/f
    rename d/f d/h
    rename d/f h
    rename x d/x
    rename f d/g
    mkdir d/s 755
    rmdir d/s
    link f d/l
    symlink a d/b
    list d
    chmod d 700
    rename d e
    rmdir d
    dropflags d APPEND
    unlink d/f
    list d
    run chattr +a f
    run lsattr f
    run chattr -a f
";

const RIGHTS: &str = "
    put f x
    chown f 1001 1001
    alice: addflags f NODUMP
    alice: flags f
    alice: addflags f IMMUTABLE
    alice: addflags f APPEND
    bob: addflags f NODUMP
    bob: flags f
    addflags f IMMUTABLE
    alice: dropflags f IMMUTABLE
    alice: addflags f NOATIME
    alice: chmod f 600
    alice: unlink f
    alice: open a f WRONLY
    dropflags f IMMUTABLE
    addflags f APPEND
    alice: dropflags f APPEND
    alice: open a f WRONLY,APPEND
    alice: write a more
    alice: open b f WRONLY
    dropflags f APPEND
    chmod f 600
    bob: flags f
    bob: run lsattr f
    alice: run chattr -v 5 f
    bob: run chattr -v 5 f
    alice: run chattr +A f
    alice: run lsattr f
    alice: flags f
    mkdir d 755
    bob: addflags d NODUMP
    bob: flags d
";

const INHERITED: &str = "
    mkdir d 755
    addflags d NODUMP,NOATIME,SYNC,DIRSYNC
    flags d
    creat d/f 644
    flags d/f
    mkdir d/s 755
    flags d/s
    symlink x d/l
    open t d RDWR,TMPFILE 600
    flags {fd:t}
    mkdir e 755
    addflags e APPEND
    creat e/f 644
    flags e/f
    dropflags e APPEND
    mkdir t 755
    addflags t TOPDIR
    mkdir t/s 755
    flags t/s
    mkdir n 755
    addflags n 0x20000000
    flags n
    rename d/f f
    flags f
";

const XFS: &str = "
    put f x
    mkdir d 755
    run xfs_io -r -c lsattr f
    run xfs_io -r -c lsattr d
    run xfs_io -c chattr%20+i f
    run xfs_io -r -c lsattr f
    flags f
    run xfs_io -r -c chattr%20-i f
    flags f
    run xfs_io -r -c chattr%20+s+A+d f
    flags f
    run xfs_io -r -c chattr%20-s-A-d f
    run xfs_io -r -c lsproj f
    run xfs_io -r -c chproj%207 f
    run xfs_io -r -c extsize%204k f
    run xfs_io -r -c extsize f
    flags f
";
