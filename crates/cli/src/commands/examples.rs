//! Examples for the manual pages: what somebody wants, and the command that does it.

/// Of a command, by its name behind `throughline`; of the program itself by ''.
pub(super) fn of(command: &str) -> &'static [(&'static str, &'static str)] {
    let known = EXAMPLES.iter().find(|(name, _)| *name == command);
    known.map_or(&[], |(_, examples)| examples)
}

type Example = (&'static str, &'static str);

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            (
                "Make an image, put a directory into it, look, and take it out again:",
                "truncate -s 1G disk.img && mke2fs -q -t ext4 disk.img\nthroughline cp -a photos disk.img:/\nthroughline ls -l disk.img:/photos\nthroughline cp -a disk.img:/photos back",
            ),
            (
                "Mount it without root, and unmount it:",
                "throughline mount disk.img dir\nthroughline umount dir",
            ),
            (
                "Change an image inside a disk, whose partition starts at sector 2048:",
                "throughline --offset 2048s rm disk.raw:/etc/hostname",
            ),
        ],
    ),
    (
        "info",
        &[(
            "What an image is, also of one that is mounted:",
            "throughline info disk.img",
        )],
    ),
    (
        "ls",
        &[
            (
                "The largest files of a directory first:",
                "throughline ls -lhS disk.img:/var/log",
            ),
            (
                "All files that end in .conf:",
                "throughline ls 'disk.img:/etc/*.conf'",
            ),
        ],
    ),
    (
        "tree",
        &[(
            "Two levels of an image:",
            "throughline tree -L 2 disk.img:/",
        )],
    ),
    (
        "stat",
        &[(
            "Mode, owner and name, as a script reads them:",
            "throughline stat -c '%a %U:%G %n' 'disk.img:/bin/*'",
        )],
    ),
    (
        "cat",
        &[(
            "A file of an image:",
            "throughline cat disk.img:/etc/os-release",
        )],
    ),
    (
        "cp",
        &[
            (
                "A directory into an image, as it is:",
                "throughline cp -a rootfs/. disk.img:/",
            ),
            (
                "The same for somebody else's files, as root's:",
                "throughline cp -r --chown 0:0 --chmod go-w rootfs/. disk.img:/",
            ),
            (
                "Out of one image into another:",
                "throughline cp -a a.img:/home b.img:/",
            ),
            (
                "A stream:",
                "curl -s https://example.org/data | throughline cp - disk.img:/data",
            ),
            (
                "Only what is newer:",
                "throughline cp -au site/. disk.img:/var/www",
            ),
        ],
    ),
    (
        "rm",
        &[(
            "All logs, whatever they are called:",
            "throughline rm -f 'disk.img:/var/log/*.log'",
        )],
    ),
    (
        "mkdir",
        &[(
            "A directory with those on the way to it:",
            "throughline mkdir -p disk.img:/srv/www/html",
        )],
    ),
    (
        "mv",
        &[(
            "A new name:",
            "throughline mv disk.img:/etc/motd disk.img:/etc/motd.old",
        )],
    ),
    (
        "ln",
        &[(
            "A symbolic link, with the way to its target:",
            "throughline ln -sr disk.img:/usr/lib/libx.so.1 disk.img:/usr/lib/libx.so",
        )],
    ),
    (
        "readlink",
        &[(
            "Where a path really leads:",
            "throughline readlink -f disk.img:/etc/localtime",
        )],
    ),
    (
        "chmod",
        &[(
            "Nobody else reads it:",
            "throughline chmod -R go= disk.img:/root",
        )],
    ),
    (
        "chown",
        &[(
            "All of a directory to a user of the image, by number:",
            "throughline chown -R 1000:1000 disk.img:/home/ann",
        )],
    ),
    (
        "find",
        &[
            (
                "Set-user-ID programs:",
                "throughline find disk.img:/ -type f -perm -4000 -ls",
            ),
            (
                "Old logs, removed:",
                "throughline find disk.img:/var/log -name '*.gz' -mtime +30 -delete",
            ),
            (
                "A table of sizes; a command of throughline for what was found:",
                "throughline find disk.img:/home -type f -printf '%s\\t%p\\n' -size +1G -exec chmod go-r {} +",
            ),
        ],
    ),
    (
        "mknod",
        &[(
            "The device that swallows everything:",
            "throughline mknod -m 666 disk.img:/dev/null c 1 3",
        )],
    ),
    (
        "getfattr",
        &[(
            "All attributes with their values:",
            "throughline getfattr -d -m - disk.img:/bin/ping",
        )],
    ),
    (
        "setfattr",
        &[(
            "An attribute of one's own:",
            "throughline setfattr -n user.origin -v build-42 disk.img:/etc/os-release",
        )],
    ),
    (
        "getfacl",
        &[("Who may what:", "throughline getfacl disk.img:/srv")],
    ),
    (
        "setfacl",
        &[(
            "A user more, here and in what is made here later:",
            "throughline setfacl -m u:1000:rwX,d:u:1000:rwX disk.img:/srv",
        )],
    ),
    (
        "lsattr",
        &[(
            "What is immutable or append-only:",
            "throughline lsattr -R disk.img:/etc | grep -e '----i' -e '-----a'",
        )],
    ),
    (
        "chattr",
        &[(
            "Not to be changed:",
            "throughline chattr +i disk.img:/etc/resolv.conf",
        )],
    ),
    ("label", &[("A label:", "throughline label disk.img root")]),
    (
        "uuid",
        &[
            (
                "For an fstab:",
                "echo \"UUID=$(throughline uuid disk.img) / ext4 defaults 0 1\"",
            ),
            (
                "Another one, for a copy that is to be mounted beside its original:",
                "throughline uuid --set random copy.img",
            ),
        ],
    ),
    (
        "touch",
        &[(
            "The times of another file:",
            "throughline touch -r disk.img:/etc/passwd disk.img:/etc/passwd-",
        )],
    ),
    (
        "truncate",
        &[(
            "A file of zeros that takes no space:",
            "throughline truncate -s 100M disk.img:/swapfile",
        )],
    ),
    (
        "shell",
        &[
            (
                "Many changes, and the image opened once:",
                "throughline shell disk.img <<'END'\nmkdir -p /etc/app\ncp host:app.conf /etc/app/\nchmod 640 /etc/app/*\nEND",
            ),
            (
                "The same from a file, whatever fails:",
                "throughline shell --keep-going disk.img -f changes",
            ),
        ],
    ),
    (
        "df",
        &[("How full images are:", "throughline df -hT *.img")],
    ),
    (
        "du",
        &[(
            "What takes the space:",
            "throughline du -hc -d 1 disk.img:/",
        )],
    ),
    (
        "tune",
        &[(
            "How fast an image can be read, and with what size of I/O:",
            "throughline tune --measure disk.img",
        )],
    ),
    (
        "replay",
        &[(
            "Make an image of a crashed machine readable for others:",
            "throughline replay disk.img",
        )],
    ),
    (
        "mount",
        &[
            (
                "For reading, and for everybody:",
                "throughline mount -o ro,allow_other disk.img dir",
            ),
            ("What is mounted:", "throughline mount"),
        ],
    ),
    (
        "umount",
        &[(
            "Unmount, and wait until the image is closed:",
            "throughline umount dir",
        )],
    ),
    (
        "status",
        &[
            ("All mounts:", "throughline status"),
            ("One, every second:", "throughline status --watch 1 dir"),
        ],
    ),
    (
        "install-fuse2fs",
        &[(
            "Programs that run fuse2fs run throughline, for this user:",
            "throughline install-fuse2fs ~/.local/bin",
        )],
    ),
    (
        "install-helpers",
        &[(
            "For mount(8) and fstab, as root:",
            "throughline install-helpers",
        )],
    ),
    (
        "explain",
        &[
            (
                "What a copy did on the disk:",
                "throughline explain cp big disk.img:/",
            ),
            (
                "What any program did, by the kernel's tracepoints, as root:",
                "throughline explain --kernel -- dd if=/dev/zero of=/mnt/f bs=4M count=10 oflag=direct",
            ),
        ],
    ),
    (
        "lab",
        &[("What is there to be measured:", "throughline lab list")],
    ),
    (
        "completions",
        &[(
            "For bash, from now on:",
            "throughline completions bash > ~/.local/share/bash-completion/completions/throughline",
        )],
    ),
    (
        "man",
        &[(
            "All pages for this user:",
            "throughline man ~/.local/share/man/man1",
        )],
    ),
];
