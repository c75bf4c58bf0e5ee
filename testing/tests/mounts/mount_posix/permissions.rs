//! Permissions: mode bits, groups, sticky and setgid directories, umask.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn permissions() {
    judge("permissions", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("mode bits of files", MODES_OF_FILES),
    case("mode bits of directories", MODES_OF_DIRECTORIES),
    case("sticky directories", STICKY),
    case("setgid directories", SETGID_DIRECTORIES),
    case("umask", UMASK),
    case("access", ACCESS),
    case("chmod", CHMOD),
    case("chown", CHOWN),
];

const MODES_OF_FILES: &str = "
    put all x
    chmod all 777
    put none x
    chmod none 000
    put owner x
    chown owner 1001 1001
    chmod owner 640
    put group x
    chown group 0 2000
    chmod group 060
    put others x
    chmod others 006
    put denied x
    chown denied 1001 2000
    chmod denied 077
    open a none RDWR
    alice: open a all RDWR
    alice: open a none RDONLY
    alice: open a owner RDWR
    bob: open a owner RDONLY
    alice: open a group RDONLY
    bob: open a group RDWR
    carol: open a group RDWR
    alice: open a others RDWR
    bob: open a others RDONLY,TRUNC
    alice: open a denied RDONLY
    alice: open a denied WRONLY
    bob: open a denied RDWR
    carol: truncate denied 0
    alice: truncate denied 0
    chown others 0 2000
    bob: open b others RDONLY
    alice: open b others RDONLY
    alice: truncate all 10
    alice: truncate none 0
    alice: truncate owner 3
    bob: truncate owner 3
    alice: open c owner RDONLY,TRUNC
    bob: open c owner RDONLY,TRUNC
    chmod owner 440
    alice: open d owner WRONLY
    alice: write a still
    chmod all 755
    alice: run ./all
    alice: open e none PATH
    alice: fstat e
    alice: stat none
    bob: utimes owner now now
    bob: utimes owner 5.000000000 6.000000000
    alice: utimes owner 5.000000000 6.000000000
    times owner
    chmod all 666
    bob: utimes all now now
    bob: utimes all 5.000000000 6.000000000
    bob: utimes all now omit
    bob: utimes all omit omit
    open f all RDONLY,NOATIME
    alice: open f all RDONLY,NOATIME
    alice: open f owner RDONLY,NOATIME
";

const MODES_OF_DIRECTORIES: &str = "
    mkdir open 777
    chmod open 777
    mkdir search 711
    mkdir list 744
    mkdir closed 700
    mkdir write 733
    chmod write 733
    mkdir group 770
    chmod group 770
    chown group 0 2000
    creat open/f 644
    creat search/f 644
    creat list/f 644
    creat closed/f 644
    creat write/f 644
    alice: list open
    alice: list search
    alice: list list
    alice: list closed
    alice: list write
    alice: list group
    bob: list group
    alice: stat open/f
    alice: stat search/f
    alice: stat list/f
    alice: stat closed/f
    alice: stat write/f
    alice: creat open/g 644
    alice: creat search/g 644
    alice: creat list/g 644
    alice: creat closed/g 644
    alice: creat write/g 644
    bob: creat group/g 644
    alice: creat group/h 644
    stat group/g
    alice: unlink open/f
    alice: unlink search/f
    alice: unlink list/f
    alice: unlink closed/f
    alice: unlink write/f
    alice: rename write/g search/x
    alice: rename write/g open/x
    alice: rename search/f open/y
    alice: mkdir search/d 755
    alice: rmdir closed
    alice: mkdir write/d 755
    alice: symlink x search/s
    alice: symlink x write/s
    alice: readlink write/s
    alice: mknod search/p fifo 644
    alice: mknod write/p fifo 644
    alice: cd closed
    alice: cd list
    alice: cd search
    alice: stat f
    alice: opendir d .
    list write
    list open
    mkdir mine 700
    creat mine/f 644
    chown mine 1001 1001
    mkdir theirs 755
    chown theirs 1002 1002
    alice2: rename mine theirs/mine
    alice2: rename theirs mine/theirs
    alice2: rename mine mine2
    bob: rename mine2 theirs/mine
    list .
    list theirs
    stat theirs
";

const STICKY: &str = "
    mkdir d 1777
    chmod d 1777
    stat d
    alice: put d/alice x
    bob: put d/bob x
    alice: mkdir d/dir 777
    alice: chmod d/dir 777
    bob: unlink d/alice
    bob: rename d/alice d/x
    bob: rename d/bob d/alice
    bob: rename d/alice d/bob EXCHANGE
    bob: rmdir d/dir
    bob: put d/dir/bob x
    alice: unlink d/dir/bob
    chmod d/dir 1777
    bob: put d/dir/bob2 x
    alice: unlink d/dir/bob2
    bob: link d/bob d/bob2
    alice: unlink d/bob2
    bob: unlink d/bob2
    alice: rename d/alice alice
    bob: rename alice d/taken
    alice: unlink d/taken
    unlink d/bob
    chown d 1002 1002
    alice: put d/a2 x
    bob: unlink d/a2
    bob: chmod d 777
    alice: put d/a3 x
    carol: unlink d/a3
    alice: put f x
    alice: chmod f 1644
    alice: stat f
    chmod f 1755
    stat f
    list d
";

const SETGID_DIRECTORIES: &str = "
    mkdir d 755
    chown d 0 2000
    chmod d 2777
    stat d
    alice: creat d/f 644
    alice: mkdir d/sub 755
    alice: stat d/f
    alice: stat d/sub
    alice: creat d/sub/g 644
    stat d/sub/g
    alice: creat d/exec 2755
    stat d/exec
    bob: creat d/exec 2755
    bob: creat d/exec2 2755
    stat d/exec2
    bob: creat d/noexec 2644
    stat d/noexec
    creat d/rootexec 2755
    stat d/rootexec
    alice: symlink x d/l
    lstat d/l
    alice: mknod d/p fifo 644
    stat d/p
    alice: mkdir d/sub2 2700
    stat d/sub2
    alice: chmod d/sub 755
    stat d/sub
    alice: chmod d/f 2755
    stat d/f
    bob: put d/bobs x
    bob: chmod d/bobs 2755
    stat d/bobs
    alice: open t d RDWR,TMPFILE 2755
    alice: fstat t
    alice: rename d/f out
    stat out
    chmod d 777
    alice: creat d/after 644
    stat d/after
    umask 0
    mkdir e 2777
    stat e
    mkdir e/x 777
    stat e/x
    list d
";

const UMASK: &str = "
    umask 0
    creat a 666
    creat a7 7777
    mkdir b 777
    mkdir b7 7777
    mknod c fifo 666
    symlink x d
    stat a
    stat a7
    stat b
    stat b7
    stat c
    lstat d
    umask 077
    creat e 666
    mkdir f 777
    mknod g fifo 666
    mknod h char 666 1 3
    bind s sock
    stat e
    stat f
    stat g
    stat h
    stat sock
    umask 777
    creat i 666
    stat i
    umask 027
    mkdir j 1777
    stat j
    open k k RDWR,CREATE 4777
    fstat k
    hangup s
";

const ACCESS: &str = "
    put f x
    chmod f 640
    chown f 1001 2000
    access f rw
    access f x
    access f f
    access none f
    alice: access f rw
    alice: access f x
    alice: access f rw EACCESS
    bob: access f r
    bob: access f w
    bob: access f r EACCESS
    carol: access f rwx
    carol: access f r
    chmod f 000
    access f rw
    access f x
    alice: access f f
    alice: access f r
    chmod f 001
    access f x
    mkdir d 000
    access d rwx
    alice: access d f
    alice: access d x
    alice: access d/x f
    symlink none l
    access l f
    symlink f m
    alice: access m x
    access f/ f
    access f/x f
";

const CHMOD: &str = "
    put f x
    chown f 1001 1001
    alice: chmod f 600
    stat f
    bob: chmod f 666
    alice: chmod f 7777
    stat f
    alice: chmod f 644
    chmod f 7777
    stat f
    chmod f 644
    chown f 1001 2000
    alice: chmod f 2755
    stat f
    chown f 1002 2000
    bob: chmod f 2755
    stat f
    bob: chmod f 2644
    stat f
    alice: chmod f 600
    alice: chmod none 600
    alice: chmod f/x 600
    symlink f l
    bob: chmod l 600
    stat f
    lstat l
    mkdir d 755
    chown d 1001 2000
    alice: chmod d 2755
    stat d
    alice: chmod d 1777
    stat d
    open a f RDONLY
    fchmod a 755
    fstat a
    mark f
    chmod f 755
    since f
    mark f
    chmod f 700
    since f
    unlink f
    fchmod a 7000
    fstat a
    alice: open p d PATH
    alice: fchmod p 700
    mknod q fifo 600
    chmod q 644
    stat q
    mkdir deep 755
    put deep/f x
    chmod deep 600
    alice: chmod deep/f 644
    chmod deep 755
    alice: chmod deep/f 644
";

const CHOWN: &str = "
    put f x
    released 0
    chown f 1001 1001
    stat f
    chown f - 2000
    stat f
    chown f 1002 -
    stat f
    chown f - -
    stat f
    bob: chown f 1001 -
    bob: chown f - 1002
    stat f
    bob: chown f - 2000
    stat f
    bob: chown f 1002 2000
    bob: chown f - 2001
    carol: chown f - 2001
    alice: chown f 1001 1001
    bob: chown f - -
    alice: chown f - -
    chown f 1002 1002
    mark f
    chown f - -
    since f
    mark f
    chown f 1002 1002
    since f
    symlink f l
    chown l 0 -
    stat f
    lstat l
    lchown l 1001 1001
    lstat l
    stat f
    chown none 0 0
    chown f/x 0 0
    open a f RDONLY
    fchown a 70000 80000
    fstat a
    fchown a 4294967294 4294967294
    fstat a
    fchown a 65536 65535
    fstat a
    unlink f
    fchown a 5 6
    fstat a
    mkdir d 755
    chown d 1002 1002
    bob: chown d - 2000
    stat d
    bob: creat d/x 644
    stat d/x
    chown dangling 1 1
    symlink none dangling
    chown dangling 1 1
    lchown dangling 1 1
    lstat dangling
";
