//! What each experiment on mounts does, and the limits of its ratios.

use super::calls::{Call, Calls};
use super::{Act, Part, Plan, Step, Unit};
use crate::mounts::contestants::Aim;

use Act::Shell;
use Step::{Cold, Do, Measure, ReadOnly};

/// Files of one directory, by one thread.
const fn files(call: Call, dir: &'static str) -> Act {
    by(call, dir, 1)
}

const fn by(call: Call, dir: &'static str, threads: usize) -> Act {
    Act::Calls(Calls { call, dir, threads })
}

const fn steps(needs: &'static str, steps: &'static [Step]) -> Part {
    Part {
        needs,
        tree: false,
        prepare: "",
        steps,
    }
}

const FILES: Plan = Plan {
    null: false,
    visible: false,
    rounds: 7,
    size: (0, 0),
    step: 1,
    unit: Unit::Files,
    inodes: 1,
    image_bytes: 0,
    parts: &[],
};
const STREAMS: Plan = Plan {
    rounds: 5,
    step: 16,
    unit: Unit::Mib,
    inodes: 0,
    ..FILES
};

/// Files of 2 KiB in one directory, by one thread. Our null server cannot be remounted, so only the first
/// five quantities are measured on it.
pub(in super::super) const SMALL: Plan = Plan {
    null: true,
    rounds: 9,
    size: (4000, 100),
    inodes: 2,
    image_bytes: 8192,
    parts: &[steps(
        "true",
        &[
            Measure(
                Aim::new("create").kernel(0.4, 0.25).fuse2fs(6.0).null(0.71),
                files(Call::Create, "dir"),
            ),
            Measure(Aim::new("read").null(0.83), files(Call::Read, "dir")),
            Measure(
                Aim::new("read again")
                    .kernel(0.35, 0.2)
                    .fuse2fs(4.0)
                    .null(0.83),
                files(Call::Read, "dir"),
            ),
            Measure(
                Aim::new("look up, missing").null(0.83),
                files(Call::Missing, "dir"),
            ),
            Do(files(Call::Create, "other")),
            Measure(Aim::new("unlink").null(0.83), files(Call::Unlink, "other")),
            Cold,
            Measure(
                Aim::new("list, cold").kernel(0.5, 0.4).fuse2fs(20.0),
                files(Call::List, "dir"),
            ),
            ReadOnly,
            Do(files(Call::Read, "dir")),
            Measure(
                Aim::new("read again, read-only")
                    .kernel(0.9, 0.9)
                    .fuse2fs(10.0),
                files(Call::Read, "dir"),
            ),
            Cold,
            Measure(
                Aim::new("remove, cold").kernel(0.5, 0.4).fuse2fs(5.0),
                files(Call::Remove, "dir"),
            ),
        ],
    )],
    ..FILES
};

/// Creates files by each number of threads, and reads them twice.
macro_rules! by_threads {
    ($($threads:literal),*) => {
        &[$(
            Measure(
                Aim::new(concat!("create, ", $threads, " threads")),
                by(Call::Create, concat!("by", $threads, "-"), $threads),
            ),
            Do(by(Call::Read, concat!("by", $threads, "-"), $threads)),
            Measure(
                Aim::new(concat!("read again, ", $threads, " threads")),
                by(Call::Read, concat!("by", $threads, "-"), $threads),
            ),
        )*]
    };
}

/// Files of 2 KiB by 1 to 16 threads. For machines with many processors.
pub(in super::super) const THREADS: Plan = Plan {
    size: (6400, 160),
    step: 16,
    inodes: 5,
    image_bytes: 5 * 8192,
    parts: &[steps("true", by_threads!(1, 2, 4, 8, 16))],
    ..FILES
};

/// A large file written, with its fsync, and read, by calls of 1 MiB; and by direct calls of 4 MiB.
pub(in super::super) const STREAM: Plan = Plan {
    size: (1024, 64),
    image_bytes: 9 << 18,
    parts: &[steps(
        "dd --version",
        &[
            Measure(
                Aim::new("write").kernel(1.3, 1.3).fuse2fs(10.0),
                Shell("dd if=/dev/zero of=buffered bs=1M count=$N conv=fsync"),
            ),
            Measure(
                Aim::new("direct write").kernel(0.75, 0.75),
                Shell("dd if=/dev/zero of=direct bs=4M count=$((N / 4)) oflag=direct conv=fsync"),
            ),
            Cold,
            Measure(
                Aim::new("cold read").kernel(1.0, 1.0).fuse2fs(4.0),
                Shell("dd if=buffered of=/dev/null bs=1M"),
            ),
            Measure(
                Aim::new("direct read").kernel(1.0, 1.0),
                Shell("dd if=direct of=/dev/null bs=4M iflag=direct"),
            ),
        ],
    )],
    ..STREAMS
};

/// 4 KiB at random offsets of a cached file.
pub(in super::super) const RANDOM: Plan = Plan {
    rounds: 7,
    size: (256, 32),
    image_bytes: 2 << 20,
    parts: &[steps(
        "dd --version",
        &[
            Do(Shell("dd if=/dev/zero of=file bs=1M count=$N conv=fsync")),
            Cold,
            Do(Shell("dd if=file of=/dev/null bs=1M")),
            Measure(Aim::new("reads").kernel(0.8, 0.8), files(Call::ReadAt, "")),
            Measure(
                Aim::new("reads, 4 threads").kernel(0.8, 0.8),
                by(Call::ReadAt, "", 4),
            ),
        ],
    )],
    ..STREAMS
};

/// Report 5's own command line, with the names that sysbench 1.0 has for its options. `--time=0` removes the
/// limit of 10 s that the older version did not apply if the number of requests was limited.
pub(in super::super) const SYSBENCH: Plan = Plan {
    size: (4096, 64),
    image_bytes: 9 << 17,
    parts: &[steps(
        "sysbench --version",
        &[Measure(
            Aim::new("written").kernel(1.0, 0.8).fuse2fs(12.0),
            Shell(
                "sysbench fileio --threads=1 --file-num=1 --file-block-size=32768 \
                 --file-total-size=${N}M --file-test-mode=seqwr --file-io-mode=sync \
                 --file-extra-flags= --file-fsync-freq=0 --file-fsync-end=off \
                 --events=$((N * 32)) --time=0 run",
            ),
        )],
    )],
    ..STREAMS
};

/// A tree like that of a large source repository, from an archive on the host and into one.
pub(in super::super) const UNTAR: Plan = Plan {
    size: (10_000, 500),
    inodes: 2,
    image_bytes: 12 << 10,
    parts: &[Part {
        needs: "tar --version",
        tree: true,
        prepare: "tar cf tree.tar tree",
        steps: &[
            Measure(
                Aim::new("untar").kernel(0.4, 0.25).fuse2fs(6.0),
                Shell("tar xf $SCRATCH/tree.tar"),
            ),
            Cold,
            // tar reads nothing for /dev/null.
            Measure(
                Aim::new("tar, cold"),
                Shell("tar cf - tree | cat >/dev/null"),
            ),
            Measure(
                Aim::new("rm -r").kernel(0.5, 0.4).fuse2fs(5.0),
                Shell("rm -r tree"),
            ),
        ],
    }],
    ..FILES
};

/// The limits of programs that people wait for.
const fn program(quantity: &'static str) -> Aim {
    Aim::new(quantity).kernel(0.4, 0.25).fuse2fs(6.0)
}

/// Without the settings of this user and machine, and without work in the background.
macro_rules! git {
    ($words:literal) => {
        concat!(
            "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null\n",
            "git() { command git -c user.name=lab -c user.email=lab@localhost -c gc.auto=0 \
             -c maintenance.auto=false \"$@\"; }\n",
            $words
        )
    };
}

/// Without network, and without the settings of this user and machine. npm refuses the same name for both
/// files of settings. It stores paths relative to the project: both its directory on the host and that on a
/// mount are two levels below the scratch directory.
macro_rules! npm {
    ($words:literal) => {
        concat!(
            "npm() { command npm \"$@\" --silent --offline --ignore-scripts --no-audit --no-fund \
             --no-update-notifier --userconfig $SCRATCH/no-user --globalconfig $SCRATCH/no-global \
             --cache $SCRATCH/npm/cache; }\n",
            $words
        )
    };
}

/// `git clone` and `git status` of a repository, `pip install` of wheels that are not compressed, and `npm
/// ci`, all without network. What they read on the host is cached.
pub(in super::super) const PROGRAMS: Plan = Plan {
    visible: true,
    size: (5000, 200),
    step: 25,
    inodes: 4,
    image_bytes: 48 << 10,
    parts: &[
        Part {
            needs: "git --version",
            tree: true,
            prepare: git!(
                "cd tree; git init -q; git add --all; git commit -q -m all; git repack -a -d -q"
            ),
            steps: &[
                Cold,
                Measure(
                    program("git clone"),
                    Shell(git!("git clone -q --no-hardlinks $SCRATCH/tree clone")),
                ),
                Cold,
                Measure(
                    program("git status, cold"),
                    Shell(git!("git -C clone status --porcelain")),
                ),
            ],
        },
        Part {
            needs: "python3 -m pip --version",
            tree: false,
            prepare: concat!(
                "mkdir wheels; wheels=$(((N + 249) / 250))\n",
                "python3 - wheels $wheels $((N / wheels)) >wheels/names <<'EOF'\n",
                include_str!("wheels.py"),
                "\nEOF\n"
            ),
            steps: &[
                Cold,
                Measure(
                    program("pip install"),
                    Shell(
                        "PIP_CONFIG_FILE=/dev/null PIP_ROOT_USER_ACTION=ignore python3 -m pip --quiet \
                         --disable-pip-version-check --no-cache-dir --no-input install --no-index \
                         --no-deps --no-compile --no-warn-script-location --ignore-installed \
                         --find-links $SCRATCH/wheels --prefix \"$ROOT/installed\" \
                         $(cat $SCRATCH/wheels/names)",
                    ),
                ),
            ],
        },
        Part {
            needs: "npm --version",
            tree: false,
            prepare: npm!(
                "mkdir -p archives npm/project package/lib; head -c 8192 /dev/urandom >data
                package=0 all=
                while [ $package -lt $((N / 25)) ]; do
                    name=package-$package
                    echo \"{\\\"name\\\":\\\"$name\\\",\\\"version\\\":\\\"1.0.0\\\"}\" >package/package.json
                    for file in $(seq 24); do
                        head -c $((500 + package * file * 37 % 5500)) data >package/lib/file-$file.js
                    done
                    tar czf archives/$name.tgz package
                    all=\"$all${all:+,}\\\"$name\\\":\\\"file:../../archives/$name.tgz\\\"\"
                    package=$((package + 1))
                done
                echo \"{\\\"name\\\":\\\"project\\\",\\\"version\\\":\\\"1.0.0\\\",\\\"dependencies\\\":{$all}}\" \
                    >npm/project/package.json
                npm install --package-lock-only --prefix npm/project"
            ),
            steps: &[
                Cold,
                Do(Shell("mkdir project; cp $SCRATCH/npm/project/package*.json project")),
                Measure(program("npm ci"), Shell(npm!("npm ci --prefix project"))),
            ],
        },
    ],
    ..FILES
};
