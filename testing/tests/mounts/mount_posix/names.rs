//! Creating, changing and removing names.

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn names() {
    judge("names", &USUAL, CASES);
}

const CASES: &[Case] = &[
    case("creation", CREATION),
    case("removal", REMOVAL),
    case("renames", RENAMES),
    case("renames of directories", RENAMES_OF_DIRECTORIES),
    case("renames that keep or exchange", RENAME_FLAGS),
    case("whiteouts", WHITEOUTS),
    case("long and odd names", ODD_NAMES),
    case("symbolic links", SYMLINKS),
    case("dots and slashes", DOTS),
    case("files without names", TMPFILES),
];

const CREATION: &str = "
    open a f WRONLY,CREATE,EXCL 644
    stat f
    open b f WRONLY,CREATE,EXCL 644
    open b f WRONLY,CREATE 600
    stat f
    write a abc
    open c f WRONLY,TRUNC
    stat f
    open d none RDONLY
    open d none/below RDWR,CREATE 644
    open d f/below RDONLY
    open d f/below RDWR,CREATE 644
    mkdir d 755
    mkdir d 755
    mkdir f 755
    mkdir f/x 755
    mkdir none/x 755
    open e d WRONLY
    open e d RDWR,CREATE 644
    open e d RDONLY,DIRECTORY
    open e f RDONLY,DIRECTORY
    open e d WRONLY,TRUNC
    open e d RDONLY,CREATE 644
    open e new RDONLY,CREATE,DIRECTORY 644
    list .
    creat '' 644
    mkdir '' 755
    stat ''
    symlink nowhere dangling
    open g dangling RDWR,CREATE,EXCL 644
    open g dangling RDWR,NOFOLLOW
    open g dangling RDONLY
    open g dangling RDWR,CREATE 644
    lstat nowhere
    mkdir dangling 755
    mkdir dangling/sub 755
    stat d
    mkdir d/sub 700
    stat d
    stat d/sub
    list d
";

const REMOVAL: &str = "
    unlink none
    rmdir none
    unlink ''
    rmdir ''
    creat f 644
    rmdir f
    unlink f/
    unlink f/x
    rmdir f/x
    unlink f
    unlink f
    mkdir d 755
    unlink d
    creat d/f 644
    rmdir d
    unlink d/f
    mkdir d/sub 755
    stat d
    rmdir d
    rmdir d/sub
    stat d
    rmdir d/
    rmdir d
    rmdir .
    rmdir ..
    unlink .
    unlink ..
    mkdir e 755
    rmdir e/.
    rmdir e/..
    mkdir e/e 755
    rmdir e/e/..
    cd e/e
    rmdir ../../e/e
    stat .
    creat x 644
    mkdir y 755
    list .
    stat ..
    cd ..
    list .
    symlink e l
    rmdir l
    unlink l/
    rmdir l/
    unlink l
    list .
";

const RENAMES: &str = "
    creat a 640
    put b bbb
    rename a c
    stat a
    stat c
    rename none x
    rename c b
    content b
    stat b
    link b b2
    rename b b2
    same b b2
    stat b
    rename b b
    stat b
    mkdir d 755
    rename b d
    rename d b
    rename b d/b
    list d
    list .
    rename d/b d/none/b
    rename d/b b2/b
    rename b2/x b
    rename d/b ''
    rename '' d/b
    rename d/b {n*255}
    rename {n*255} {n*256}
    rename {n*255} b
    mark b
    mark .
    mark d
    rename b d/b
    since .
    since d
    marked d/b moved
    link d/b e
    unlink d/b
    symlink somewhere s
    rename s t
    readlink t
    lstat t
    rename t e
    lstat e
    readlink e
    list .
    stat .
";

const RENAMES_OF_DIRECTORIES: &str = "
    mkdir a 755
    mkdir a/b 755
    mkdir a/b/c 755
    mkdir e 755
    rename a a/b/x
    rename a a/b
    rename a/b a
    rename e a
    rename a e
    list .
    list e
    stat e
    mkdir a 700
    rename e/b a/b
    stat e
    stat a
    stat a/b
    list a
    list a/b
    cd a/b
    rename ../../a ../../z
    creat here 644
    stat ..
    cd ../..
    list z/b
    rename . x
    rename z/. x
    rename z/.. x
    rename x .
    rename z z/
    rename z/ y/
    list .
    creat f 644
    rename f g/
    rename y f
    rename f y
    rename y/ f/
    mkdir full 755
    creat full/x 644
    rename y full
    rename full y
    mkdir empty 755
    rename full empty
    list .
    list empty
    stat empty
    stat .
";

const RENAME_FLAGS: &str = "
    put a aaa
    put b bbb
    rename a b NOREPLACE
    rename a c NOREPLACE
    list .
    rename b c EXCHANGE
    content b
    content c
    rename b none EXCHANGE
    rename none b EXCHANGE
    mkdir d 755
    creat d/x 600
    rename b d EXCHANGE
    list .
    list b
    content d
    stat .
    rename b b/x EXCHANGE
    rename b/x b EXCHANGE
    rename b b EXCHANGE
    rename b b NOREPLACE
    mkdir e 755
    mkdir e/sub 755
    mkdir g 755
    mkdir g/sub 755
    mkdir g/sub/deep 755
    rename e/sub g/sub EXCHANGE
    list e/sub
    list g/sub
    stat e/sub
    stat g/sub
    rename e g/sub EXCHANGE
    stat e
    stat g
    stat g/sub
    creat f 644
    rename f e/sub EXCHANGE
    stat e
    stat .
    rename f c NOREPLACE,EXCHANGE
    rename f c EXCHANGE,WHITEOUT
    rename f c 0x40
    symlink target s
    rename s c EXCHANGE
    readlink c
    lstat s
    mark c
    mark s
    mark .
    rename s c EXCHANGE
    since .
    link c c2
    rename c c2 NOREPLACE
    rename c c2 EXCHANGE
    same c c2
";

const WHITEOUTS: &str = "
    put a aaa
    put b bbb
    rename a c WHITEOUT
    lstat a
    content c
    rename c b WHITEOUT
    lstat c
    content b
    list .
    rename b a WHITEOUT,NOREPLACE
    rename b z WHITEOUT,NOREPLACE
    list .
    mkdir d 755
    rename d e WHITEOUT
    lstat d
    stat .
    stat e
    unlink d
    chmod . 777
    alice: rename z y WHITEOUT
    alice: put mine x
    alice: rename mine yours WHITEOUT
    alice: lstat mine
    list .
";

const ODD_NAMES: &str = "
    creat {n*255} 644
    creat {n*256} 644
    mkdir {d*255} 755
    mkdir {d*256} 755
    stat {n*256}
    unlink {n*256}
    rename {n*255} {m*256}
    link {n*255} {m*256}
    symlink x {s*256}
    creat {ü*127} 644
    creat {ü*128} 644
    creat %ff%fe%01 644
    creat a%20b%0ac 644
    creat %5c 644
    list .
    stat {./*2047}f
    stat {./*2048}f
    creat {{d*255}/*1}{n*255} 644
    creat {{d*255}/*15}{n*255} 644
    creat {{d*255}/*16}{n*255} 644
    list {d*255}
    readlink %5c
    unlink %ff%fe%01
    unlink a%20b%0ac
    creat a 644
    creat A 644
    list .
    creat ... 644
    creat .hidden 644
    creat -f 644
    list .
";

const SYMLINKS: &str = "
    symlink target a
    readlink a
    lstat a
    stat a
    symlink target a
    symlink '' b
    symlink {t*59} short
    symlink {t*60} middle
    symlink {t*4094} long
    symlink {t*4095} longest
    symlink {t*4096} beyond
    lstat short
    lstat middle
    lstat long
    lstat longest
    readlink short
    readlink middle
    readlink long
    readlink longest
    each 0 50 symlink l{i} l{i}x
    symlink loop1 loop2
    symlink loop2 loop1
    stat loop1
    open f loop1 RDONLY
    chmod loop1 644
    unlink loop1
    stat loop2
    put end xyz
    symlink end chain0
    symlink chain0 chain1
    symlink chain1 chain2
    symlink chain2 chain3
    content chain3
    put x data
    each 1 45 symlink {x*{i}} x{x*{i}}
    each 30 45 content {x*{i}}
    symlink self/x self
    stat self
    mkdir d 755
    symlink d dl
    creat dl/f 644
    list d
    lstat dl/
    stat dl/.
    open f dl RDONLY,NOFOLLOW
    open f dl RDONLY,DIRECTORY,NOFOLLOW
    open f dl PATH,NOFOLLOW
    fstat f
    rename dl dl2
    readlink dl2
    readlink d
    readlink end
    readlink none
    link dl2 dl3
    lstat dl3
    link dl2 dl4 SYMLINK_FOLLOW
    link chain3 end2 SYMLINK_FOLLOW
    same end end2
    symlink ../../.. up
    readlink up
    symlink %ff%01 bytes
    readlink bytes
    list .
";

const DOTS: &str = "
    mkdir d 755
    stat d/.
    same d d/.
    same . d/..
    same d//. d
    stat d/../d/./../d
    creat f 644
    stat f/
    stat f/.
    stat f/..
    open a f/ RDONLY
    creat g/ 644
    open a g/ RDWR,CREATE 644
    mkdir h/ 755
    mkdir i/. 755
    mkdir . 755
    mkdir .. 755
    link f j/
    symlink f k/
    symlink d/ l
    stat l
    mknod m/ fifo 644
    unlink d/.
    rename d/. x
    rename x d/.
    link . n
    link d n
    truncate f/ 0
    chmod f/ 600
    readlink l/
    access f/ f
    list .
    list d
";

const TMPFILES: &str = "
    open a . RDWR,TMPFILE 600
    fstat a
    write a hello
    pread a 0 10
    list .
    link {fd:a} named SYMLINK_FOLLOW
    fstat a
    content named
    stat named
    open b . WRONLY,TMPFILE,EXCL 644
    link {fd:b} never SYMLINK_FOLLOW
    fstat b
    open c . RDONLY,TMPFILE 644
    open c none RDWR,TMPFILE 644
    open c named RDWR,TMPFILE 644
    umask 027
    open c . RDWR,TMPFILE 666
    fstat c
    linkfd c second
    stat second
    linkfd c third
    fstat c
    linkfd c third
    mkdir d 2755
    chown d 0 2000
    chmod d 2777
    open d d RDWR,TMPFILE 644
    fstat d
    alice: open a d RDWR,TMPFILE 644
    alice: fstat a
    alice: write a text
    alice: link {fd:a} d/alice SYMLINK_FOLLOW
    alice: linkfd a d/alice2
    stat d/alice
    chmod d 755
    alice: open b d RDWR,TMPFILE 644
    mkdir ro 555
    alice: open b ro RDWR,TMPFILE 644
    open e . RDWR,TMPFILE 644
    fsync e
    ftruncate e 1M
    fallocate e - 0 64k
    close e
    unlink named
    fstat a
    linkfd a again
    list .
    list d
";
