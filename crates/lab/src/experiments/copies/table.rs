//! What each experiment on commands does, and its limits.

use super::{Plan, Way};

const PLAN: Plan = Plan {
    rounds: 5,
    size: (0, 0),
    quantity: ("time", "s"),
    tree: false,
    prepare: "",
    ways: &[],
    ratios: &[],
    memory: (&[], 0.0),
    cool: false,
    note: "",
};

const WAY: Way = Way {
    name: "",
    before: "",
    run: "",
    after: "",
    sync: "",
    mount: "",
};

/// One large file into a new ext4 image and out of one, beside `dd` by O_DIRECT on plain files of the same
/// disk, and `cat` on the kernel's loop mount.
pub(in super::super) const CP_STREAM: Plan = Plan {
    size: (2048, 64),
    quantity: ("throughput", "MB/s"),
    prepare: "head -c ${N}M /dev/urandom >source; fresh full $((N * 5 / 4 + 64))M
        \"$THROUGHLINE\" cp source full:/file",
    ways: &[
        Way {
            name: "cp, cold",
            before: "cold source; fresh image $((N * 5 / 4 + 64))M",
            run: "exec \"$THROUGHLINE\" --engine $ENGINE cp source image:/file",
            after: "check image; rm image",
            ..WAY
        },
        Way {
            name: "cp, cached",
            before: "cat source >/dev/null; fresh image $((N * 5 / 4 + 64))M",
            run: "exec \"$THROUGHLINE\" --engine $ENGINE cp source image:/file",
            after: "check image; rm image",
            ..WAY
        },
        Way {
            name: "dd, cold",
            before: "fallocate -l ${N}M plain; cold source",
            run: "exec dd if=source of=plain bs=1M iflag=direct oflag=direct conv=notrunc,fsync",
            after: "rm plain",
            ..WAY
        },
        Way {
            name: "dd, cached",
            before: "fallocate -l ${N}M plain; cat source >/dev/null",
            run: "exec dd if=source of=plain bs=1M iflag=direct oflag=direct conv=notrunc,fsync",
            after: "rm plain",
            ..WAY
        },
        Way {
            name: "cat",
            before: "cold full",
            run: "exec \"$THROUGHLINE\" --engine $ENGINE cat full:/file",
            ..WAY
        },
        Way {
            name: "cp to a file",
            before: "cold full",
            run: "exec \"$THROUGHLINE\" --engine $ENGINE cp full:/file plain",
            after: "rm plain",
            ..WAY
        },
        Way {
            name: "dd, read",
            before: "cold source",
            run: "exec dd if=source of=/dev/null bs=1M iflag=direct",
            ..WAY
        },
        Way {
            name: "kernel's cat",
            before: "cold full",
            run: "exec cat \"$MOUNT/file\"",
            mount: "full",
            ..WAY
        },
    ],
    ratios: &[
        (
            "cp into ext4 / dd, both direct, source cold",
            "cp, cold",
            "dd, cold",
            1.0,
        ),
        (
            "cp into ext4 / dd, both direct, source cached",
            "cp, cached",
            "dd, cached",
            1.0,
        ),
        ("cat / dd, direct read", "cat", "dd, read", 1.0),
        (
            "cat / cat on the kernel's loop mount",
            "cat",
            "kernel's cat",
            1.0,
        ),
        (
            "cp to a file / dd, both direct",
            "cp to a file",
            "dd, cold",
            1.0,
        ),
    ],
    memory: (&["cp, cold", "cp, cached", "cat", "cp to a file"], 96.0),
    cool: true,
    note: "what writes a file ends with an fsync",
    ..PLAN
};

/// A tree of small files into an ext4 image by `cp -a`, ours and the kernel's on a loop mount. Both use the
/// same image. It was fully written before, so that the disk's file system allocates nothing.
pub(in super::super) const CP_TREE: Plan = Plan {
    size: (20_000, 200),
    tree: true,
    prepare: "head -c $((N * 8 + 262144))K /dev/zero >image; sync image",
    ways: &[
        Way {
            name: "cp -a",
            before: MAKE,
            run: "exec \"$THROUGHLINE\" --engine $ENGINE cp -a tree image:/",
            after: "check image",
            ..WAY
        },
        Way {
            name: "kernel's cp -a",
            before: MAKE,
            run: "cp -a tree \"$MOUNT\"; sync -f \"$MOUNT\"",
            mount: "image",
            ..WAY
        },
    ],
    ratios: &[(
        "the kernel's cp -a and sync -f / cp -a, time",
        "kernel's cp -a",
        "cp -a",
        1.5,
    )],
    memory: (&["cp -a"], 256.0),
    note: "the kernel's mount is not part of its time",
    ..PLAN
};
const MAKE: &str = "UNIX_IO_NOZEROOUT=1 mke2fs -q -F -t ext4 -N $((N + N / 100 + 1000)) \
    -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 image; cold image";

/// `pack` of the tree, or with other settings.
macro_rules! pack {
    ($settings:literal) => {
        concat!(
            $settings,
            "exec \"$THROUGHLINE\" pack -N $((N + N / 30 + 100)) --size $((N * 4608 + (64 << 20))) \
             ${TREE:-tree} -o image"
        )
    };
}

const CLEAR: &str = "rm -f image; sync";

/// An image from small files, beside `mke2fs -d`.
pub(in super::super) const PACK_TREES: Plan = Plan {
    size: (120_000, 1_000),
    tree: true,
    ways: &[
        Way {
            name: "pack",
            before: CLEAR,
            run: pack!(""),
            after: "check image",
            sync: "image",
            ..WAY
        },
        Way {
            name: "mke2fs -d",
            before: CLEAR,
            run: "exec mke2fs -q -t ext4 -N $((N + N / 30 + 100)) -d tree image $((N * 9 / 2 + 65536))k",
            after: "check image",
            sync: "image",
            ..WAY
        },
    ],
    ratios: &[("mke2fs -d / pack, time", "mke2fs -d", "pack", 3.0)],
    note: "the tree is in the host's cache; the sync of the image to the disk counts",
    ..PLAN
};

/// An image from four large files, beside `mke2fs -d`, and `dd` of the same files.
pub(in super::super) const PACK_LARGE: Plan = Plan {
    size: (4096, 64),
    prepare: "mkdir tree; for file in 0 1 2 3; do head -c $((N / 4))M /dev/urandom >tree/$file; done; sync",
    ways: &[
        Way {
            name: "pack",
            before: CLEAR,
            run: "exec \"$THROUGHLINE\" pack -N 1024 --size $((N * 17 / 16 + 128))M tree -o image",
            after: "check image",
            sync: "image",
            ..WAY
        },
        Way {
            name: "mke2fs -d",
            before: CLEAR,
            run: "exec mke2fs -q -t ext4 -N 1024 -d tree image $((N * 17 / 16 + 128))M",
            after: "check image",
            sync: "image",
            ..WAY
        },
        Way {
            name: "dd, direct",
            before: CLEAR,
            run: "for file in 0 1 2 3; do
                dd if=tree/$file of=image seek=$((file * (N / 4))) bs=1M oflag=direct conv=notrunc status=none
            done",
            sync: "image",
            ..WAY
        },
    ],
    ratios: &[
        ("mke2fs -d / pack, time", "mke2fs -d", "pack", 3.0),
        ("dd oflag=direct / pack, time", "dd, direct", "pack", 0.95),
    ],
    note: "the files are in the host's cache; the sync of the image to the disk counts",
    ..PLAN
};

/// Images from many small files: how time and memory grow.
pub(in super::super) const PACK_MILLION: Plan = Plan {
    rounds: 3,
    size: (1_000_000, 10_000),
    tree: true,
    prepare: "mkdir few; cp -a --parents $(ls -d tree/*/* | head -n $((N / 1000))) few",
    ways: &[
        Way {
            name: "a tenth of the files",
            before: CLEAR,
            run: pack!("N=$((N / 10)); TREE=few; "),
            after: "check image",
            sync: "image",
            ..WAY
        },
        Way {
            name: "all files",
            before: CLEAR,
            run: pack!(""),
            after: "check image",
            sync: "image",
            ..WAY
        },
    ],
    ratios: &[(
        "a tenth of the files / all files, time",
        "a tenth of the files",
        "all files",
        1.0 / 11.0,
    )],
    memory: (&["all files"], 512.0),
    note: "the trees are in the host's cache; the sync of the image to the disk counts",
    ..PLAN
};
