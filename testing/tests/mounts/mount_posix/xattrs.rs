//! Extended attributes: all namespaces, sizes and errors.

use throughline_testing::pair::Recipe;

use crate::mount_posix::judge::{USUAL, judge};
use crate::mount_posix::script::{Case, case};

#[test]
fn xattrs() {
    judge("xattrs", &USUAL, CASES);
}

#[test]
fn large_xattrs() {
    let recipe = Recipe {
        mke2fs: "-t ext4 -b 4096 -O ea_inode",
        size: "64M",
        options: "",
    };
    judge("large xattrs", &recipe, LARGE_CASES);
}

const CASES: &[Case] = &[
    case("user attributes", USER),
    case("namespaces", NAMESPACES),
    case("attributes of all types", TYPES),
    case("rights to attributes", RIGHTS),
    case("sizes of attributes", SIZES),
    case("many attributes", MANY),
    case("attributes in one block", SHARED),
];

const LARGE_CASES: &[Case] = &[case("attributes in inodes", LARGE)];

const USER: &str = "
    put f x
    listxattr f
    getxattr f user.a
    setxattr f user.a 1
    getxattr f user.a
    setxattr f user.a 22
    getxattr f user.a
    setxattr f user.a 3 CREATE
    setxattr f user.b 3 REPLACE
    setxattr f user.b 3 CREATE
    setxattr f user.b 4 REPLACE
    setxattr f user.d ''
    getxattr f user.d
    listxattr f
    listxattr f 0
    listxattr f 5
    getxattr f user.a 0
    getxattr f user.a 1
    getxattr f user.a 2
    getxattr f user.a 3
    removexattr f user.a
    removexattr f user.a
    listxattr f
    setxattr none user.a 1
    getxattr none user.a
    setxattr f/x user.a 1
    setxattr f user. 1
    setxattr f user 1
    setxattr f '' 1
    getxattr f ''
    setxattr f USER.a 1
    setxattr f user.%ff%fe 1
    setxattr f user.UPPER 1
    setxattr f user.upper 2
    setxattr f user.bytes %00%01%ff%00
    getxattr f user.bytes
    listxattr f
    setxattr f user.a 1 0x8
    open a f RDONLY
    fsetxattr a user.f 1
    fgetxattr a user.f
    flistxattr a
    fremovexattr a user.f
    unlink f
    fsetxattr a user.late 1
    fgetxattr a user.late
    flistxattr a
    open p . PATH
    fsetxattr p user.x 1
    fgetxattr p user.x
";

const NAMESPACES: &str = "
    put f x
    setxattr f trusted.a 1
    setxattr f security.a 2
    setxattr f user.a 3
    setxattr f system.a 4
    setxattr f other.a 5
    setxattr f a 6
    setxattr f trusted. 1
    setxattr f security. 1
    listxattr f
    getxattr f trusted.a
    getxattr f security.a
    getxattr f system.a
    getxattr f other.a
    getxattr f system.data
    setxattr f system.data x
    removexattr f other.a
    removexattr f system.a
    chmod f 666
    alice: listxattr f
    alice: getxattr f trusted.a
    alice: getxattr f security.a
    alice: getxattr f user.a
    alice: setxattr f trusted.b 1
    alice: setxattr f security.b 1
    alice: setxattr f user.b 1
    alice: removexattr f trusted.a
    alice: removexattr f security.a
    alice: removexattr f user.a
    alice: removexattr f trusted.none
    alice: getxattr f trusted.none
    listxattr f
    alice: put mine x
    alice: setxattr mine trusted.a 1
    alice: setxattr mine security.a 1
    alice: setxattr mine user.a 1
    removexattr f trusted.a
    removexattr f security.a
    listxattr f
    getxattr f throughline.status
    setxattr f throughline.status x
    run setfattr -n user.by.tool -v value f
    run getfattr -d -m - f
    setxattr f security.selinux x
    getxattr f security.selinux
    setxattr f security.capability x
    setxattr f security.ima x
    listxattr f
";

const TYPES: &str = "
    mkdir d 755
    setxattr d user.a 1
    setxattr d trusted.a 1
    listxattr d
    symlink d l
    lsetxattr l user.a 1
    lsetxattr l trusted.a 1
    lsetxattr l security.a 1
    llistxattr l
    lgetxattr l trusted.a
    lgetxattr l user.a
    setxattr l user.b 2
    listxattr d
    lremovexattr l trusted.a
    llistxattr l
    symlink {x*200} slow
    lsetxattr slow trusted.a y*100
    readlink slow
    llistxattr slow
    mknod p fifo 666
    setxattr p user.a 1
    getxattr p user.a
    setxattr p trusted.a 1
    listxattr p
    mknod c char 666 1 3
    setxattr c user.a 1
    setxattr c trusted.a 1
    getxattr c trusted.a
    mknod s socket 666
    setxattr s user.a 1
    setxattr s trusted.a 1
    listxattr s
    mkdir t 1777
    chmod t 1777
    alice: setxattr t user.a 1
    bob: getxattr t user.a
    setxattr t user.a 1
    alice: getxattr t user.a
    alice: removexattr t user.a
    chown t 1001 1001
    alice: setxattr t user.b 1
    bob: setxattr t user.c 1
";

const RIGHTS: &str = "
    put f x
    chmod f 640
    chown f 1001 2000
    setxattr f user.a 1
    alice: setxattr f user.b 2
    alice: getxattr f user.a
    bob: getxattr f user.a
    bob: setxattr f user.c 3
    carol: listxattr f
    chmod f 600
    bob: getxattr f user.a
    bob: listxattr f
    bob: removexattr f user.a
    chmod f 200
    alice: setxattr f user.w 1
    alice: getxattr f user.w
    chmod f 400
    alice: setxattr f user.w 2
    alice: getxattr f user.w
    alice: removexattr f user.w
    mkdir d 711
    put d/f x
    setxattr d/f user.a 1
    alice: getxattr d/f user.a
    alice: getxattr d user.a
    alice: setxattr d user.a 1
    chmod d 700
    alice: getxattr d/f user.a
    addflags f IMMUTABLE
    setxattr f user.i 1
    removexattr f user.a
    getxattr f user.a
    dropflags f IMMUTABLE
    addflags f APPEND
    setxattr f user.i 1
    removexattr f user.a
    dropflags f APPEND
    mark f
    getxattr f user.a
    listxattr f
    since f
";

const SIZES: &str = "
    put f x
    setxattr f user.{n*250} 1
    setxattr f user.{n*251} 1
    getxattr f user.{n*250}
    getxattr f user.{n*251}
    removexattr f user.{n*251}
    removexattr f user.{n*250}
    setxattr f user.a x*3000
    setxattr f user.a x*4000
    setxattr f user.a x*4096
    getxattr f user.a
    setxattr f user.a x*5000
    getxattr f user.a
    setxattr f user.a x*65536
    setxattr f user.a x*65537
    getxattr f user.a
    setxattr f user.a y*100
    getxattr f user.a
    setxattr f user.b z*3900
    getxattr f user.b
    setxattr f user.a y*50
    setxattr f user.c w*40
    listxattr f
    removexattr f user.b
    setxattr f user.b z*3800
    setxattr f user.c w*40
    listxattr f
    setxattr f user.{n*200} x*10
    setxattr f user.{m*250} x*10
    setxattr f user.in1 x*10
    setxattr f user.in2 x*10
    setxattr f user.in3 x*10
    setxattr f user.in4 x*10
    setxattr f user.b x
    setxattr f user.in1 x*70
    setxattr f user.in2 x*70
    setxattr f user.in3 x*70
    listxattr f
    getxattr f user.in3
    getxattr f user.c
";

const MANY: &str = "
    put f x
    each 0 300 setxattr f user.n{i} value{i}
    listxattr f 0
    each 0 300 getxattr f user.n{i}
    each 0 100 setxattr f user.n{i} v REPLACE
    each 0 300 removexattr f user.n{i}
    listxattr f
    each 0 100 setxattr f user.a{i} v
    each 0 100 setxattr f user.a{i} longer-than-that
    each 0 100 setxattr f user.a{i} ''
    each 0 100 getxattr f user.a{i}
    listxattr f
    unlink f
    creat f 644
    listxattr f
";

const SHARED: &str = "
    each 0 20 put f{i} x
    each 0 20 setxattr f{i} user.same x*800
    each 0 20 setxattr f{i} trusted.same y*300
    each 0 20 getxattr f{i} user.same
    setxattr f3 user.same z*800
    getxattr f3 user.same
    getxattr f4 user.same
    each 5 15 unlink f{i}
    removexattr f4 user.same
    getxattr f2 user.same
    listxattr f4
    setxattr f4 user.same x*800
    setxattr f4 user.same x*10
    each 0 5 listxattr f{i}
    run setfattr -x trusted.same f1 f2 f3
    each 0 5 listxattr f{i}
    blocks f0
    blocks f1
";

const LARGE: &str = "
    put f x
    setxattr f user.a x*5000
    getxattr f user.a
    setxattr f user.b y*65536
    getxattr f user.b
    setxattr f user.c z*65537
    setxattr f user.c z*20000
    listxattr f
    getxattr f user.b 65535
    getxattr f user.b 0
    setxattr f user.b short
    getxattr f user.b
    setxattr f user.a w*6000
    getxattr f user.a
    put g x
    setxattr g user.same x*10000
    put h x
    setxattr h user.same x*10000
    unlink g
    getxattr h user.same
    removexattr f user.a
    listxattr f
    rename h i
    open a i RDONLY
    unlink i
    fgetxattr a user.same
    fsetxattr a user.more y*9000
    fgetxattr a user.more
    mkdir d 755
    setxattr d user.a x*30000
    setxattr d trusted.a y*30000
    listxattr d
    each 0 8 setxattr f user.n{i} q*5000
    each 0 8 getxattr f user.n{i}
    each 0 8 removexattr f user.n{i}
    listxattr f
";
