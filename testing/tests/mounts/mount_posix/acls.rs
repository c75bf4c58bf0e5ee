//! POSIX access control lists: what they permit, how they are inherited, and the effect of `chmod`.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn acls() {
    judge("acls", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("access by ACLs", ACCESS),
    case("ACLs and modes", MODES),
    case("inherited ACLs", DEFAULTS),
    case("invalid ACLs", REFUSED),
];

const ACCESS: &str = "
    put f x
    chmod f 600
    run setfacl -m u:1001:rw f
    run getfacl -n f
    stat f
    alice: open a f RDWR
    bob: open a f RDONLY
    alice: access f rw
    alice: access f x
    run setfacl -m g:2000:r f
    bob: open b f RDONLY
    bob: open b f RDWR
    run setfacl -m m::r f
    run getfacl -n f
    stat f
    alice: open c f RDWR
    alice: open c f RDONLY
    run setfacl -m u:1002:- f
    bob: open d f RDONLY
    carol: open d f RDONLY
    chmod f 644
    bob: open d f RDONLY
    run setfacl -m o::- f
    run setfacl -m g:2001:w,m::rwx f
    carol: open e f RDONLY
    carol: open e f WRONLY
    carol: open e f RDWR
    run setfacl -x u:1001 f
    alice: open g f RDONLY
    alice: run setfacl -m u:1001:rw f
    chown f 1001 1001
    alice: run setfacl -m u:1002:rw f
    run getfacl -n f
    bob: open h f RDWR
    run setfacl -b f
    run getfacl -n f
    listxattr f
    stat f
    bob: open i f RDWR
    mkdir d 700
    run setfacl -m u:1001:x,u:1002:rwx d
    put d/f x
    alice: stat d/f
    alice: list d
    alice: creat d/g 644
    bob: creat d/h 644
    bob: unlink d/f
    list d
";

const MODES: &str = "
    put f x
    chmod f 640
    run setfacl -m u:1001:rwx,g:2000:rx f
    stat f
    run getfacl -n f
    chmod f 640
    stat f
    run getfacl -n f
    chmod f 777
    run getfacl -n f
    chmod f 600
    run getfacl -n f
    alice: access f r
    run setfacl -m m::rw f
    stat f
    run setfacl -n -m u:1002:rwx f
    stat f
    run getfacl -n f
    run setfacl --set u::rw,g::r,o::- f
    stat f
    listxattr f
    put g x
    chown g 1001 2000
    chmod g 2755
    alice: run setfacl -m u:1002:r g
    stat g
    chmod g 2755
    run setfacl -m u:1002:rw g
    stat g
    bob: chmod g 644
    mark g
    run setfacl -m u:1003:r g
    since g
    mark g
    run setfacl -b g
    since g
    stat g
    chown g 1002 1002
    run getfacl -n g
";

const DEFAULTS: &str = "
    mkdir d 755
    run setfacl -d -m u:1001:rwx,g:2000:rx d
    run getfacl -n d
    listxattr d
    creat d/f 666
    run getfacl -n d/f
    stat d/f
    creat d/g 600
    run getfacl -n d/g
    creat d/h 7777
    stat d/h
    mkdir d/sub 777
    run getfacl -n d/sub
    stat d/sub
    mkdir d/sub2 700
    run getfacl -n d/sub2
    creat d/sub/x 644
    run getfacl -n d/sub/x
    symlink x d/l
    lstat d/l
    llistxattr d/l
    mknod d/p fifo 666
    run getfacl -n d/p
    mknod d/n char 640 1 3
    run getfacl -n d/n
    bind s d/sock
    run getfacl -n d/sock
    open t d RDWR,TMPFILE 666
    fstat t
    flistxattr t
    linkfd t d/t
    run getfacl -n d/t
    umask 077
    creat d/masked 666
    run getfacl -n d/masked
    stat d/masked
    mkdir d/maskdir 777
    stat d/maskdir
    run setfacl -k d
    run getfacl -n d
    creat d/plain 666
    stat d/plain
    umask 022
    run setfacl -d -m u::rwx,g::rx,o::- d
    run getfacl -n d
    creat d/simple 666
    stat d/simple
    listxattr d/simple
    umask 077
    creat d/simple2 777
    stat d/simple2
    mkdir e 777
    chmod e 777
    run setfacl -d -m u:1002:rw,o::r e
    alice: creat e/alice 666
    run getfacl -n e/alice
    bob: open b e/alice RDWR
    alice: mkdir e/adir 777
    alice: creat e/adir/x 660
    stat e/adir/x
    rename e/alice plain
    run getfacl -n plain
    rename e/adir/x e/adir/y WHITEOUT
    lstat e/adir/x
    run getfacl -n e/adir/x
    alice: put e/mine x
    alice: rename e/mine e/yours WHITEOUT
    run getfacl -n e/mine
    list e
    creat q 644
    run setfacl -d -m u:1002:rw q
    hangup s
";

const REFUSED: &str = "
    put f x
    setxattr f system.posix_acl_access ''
    setxattr f system.posix_acl_access abcd
    setxattr f system.posix_acl_access %02%00%00%00
    setxattr f system.posix_acl_access %01%00%00%00
    setxattr f system.posix_acl_access %02%00%00%00%01%00%06%00%ff%ff%ff%ff
    setxattr f system.posix_acl_access \
        %02%00%00%00%01%00%06%00%ff%ff%ff%ff%04%00%04%00%ff%ff%ff%ff%20%00%04%00%ff%ff%ff%ff
    stat f
    listxattr f
    setxattr f system.posix_acl_access \
        %02%00%00%00%01%00%07%00%ff%ff%ff%ff%04%00%04%00%ff%ff%ff%ff%20%00%04%00%ff%ff%ff
    setxattr f system.posix_acl_access \
        %02%00%00%00%01%00%17%00%ff%ff%ff%ff%04%00%04%00%ff%ff%ff%ff%20%00%04%00%ff%ff%ff%ff
    setxattr f system.posix_acl_default \
        %02%00%00%00%01%00%06%00%ff%ff%ff%ff%04%00%04%00%ff%ff%ff%ff%20%00%04%00%ff%ff%ff%ff
    setxattr f system.posix_acl_other x
    getxattr f system.posix_acl_access
    getxattr f system.posix_acl_default
    removexattr f system.posix_acl_access
    removexattr f system.posix_acl_default
    alice: getxattr f system.posix_acl_access
    alice: setxattr f system.posix_acl_access \
        %02%00%00%00%01%00%07%00%ff%ff%ff%ff%04%00%07%00%ff%ff%ff%ff%20%00%07%00%ff%ff%ff%ff
    alice: removexattr f system.posix_acl_access
    mkdir d 755
    alice: setxattr d system.posix_acl_default \
        %02%00%00%00%01%00%07%00%ff%ff%ff%ff%04%00%07%00%ff%ff%ff%ff%20%00%07%00%ff%ff%ff%ff
    setxattr d system.posix_acl_default \
        %02%00%00%00%01%00%07%00%ff%ff%ff%ff%04%00%07%00%ff%ff%ff%ff%20%00%07%00%ff%ff%ff%ff
    getxattr d system.posix_acl_default
    getxattr d system.posix_acl_default 3
    getxattr d system.posix_acl_default 0
    listxattr d
    removexattr d system.posix_acl_default
    removexattr d system.posix_acl_default
    listxattr d
    symlink f l
    lsetxattr l system.posix_acl_access \
        %02%00%00%00%01%00%06%00%ff%ff%ff%ff%04%00%04%00%ff%ff%ff%ff%20%00%04%00%ff%ff%ff%ff
    lgetxattr l system.posix_acl_access
    getxattr l system.posix_acl_access
    run setfacl -m u:1001:rw f
    setxattr f system.posix_acl_access x CREATE
    run getfacl -n f
    getxattr f system.posix_acl_access 4
    getxattr f system.posix_acl_access
    removexattr f system.posix_acl_access
    stat f
    run getfacl -n f
";
