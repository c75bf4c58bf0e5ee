//! Examples for the manual pages: a purpose and its commands.

/// The examples of a command, by its name after `throughline`; '' is the program itself. Each is a purpose
/// with its command lines.
pub(super) fn of(command: &str) -> Vec<(&'static str, String)> {
    let head = format!("[{command}]");
    let behind = EXAMPLES.lines().skip_while(|line| *line != head).skip(1);
    let mut examples: Vec<(&str, String)> = Vec::new();
    for line in behind.take_while(|line| !line.starts_with('[')) {
        match (line.strip_prefix("  "), examples.last_mut()) {
            (Some(line), Some((_, lines))) => {
                lines.push_str(line);
                lines.push('\n');
            }
            _ => examples.push((line, String::new())),
        }
    }
    examples
}

/// Per command, in brackets: purposes, each followed by its indented command lines.
const EXAMPLES: &str = r#"[]
Make an image, copy a directory into it, list it, and copy it out again:
  truncate -s 1G disk.img && mke2fs -q -t ext4 disk.img
  throughline cp -a photos disk.img:/
  throughline ls -l disk.img:/photos
  throughline cp -a disk.img:/photos back
Mount it without root, and unmount it:
  throughline mount disk.img dir
  throughline umount dir
Change a file system in a disk image, in a partition that starts at sector 2048:
  throughline --offset 2048s rm disk.raw:/etc/hostname
[info]
Show an image, even one that is mounted:
  throughline info disk.img
[ls]
List a directory, largest files first:
  throughline ls -lhS disk.img:/var/log
List all files that end in .conf:
  throughline ls 'disk.img:/etc/*.conf'
[tree]
Show two levels of an image:
  throughline tree -L 2 disk.img:/
[stat]
Print mode, owner and name for a script:
  throughline stat -c '%a %U:%G %n' 'disk.img:/bin/*'
[cat]
Print a file of an image:
  throughline cat disk.img:/etc/os-release
[cp]
Copy a directory into an image, with all attributes:
  throughline cp -a rootfs/. disk.img:/
The same, but owned by root:
  throughline cp -r --chown 0:0 --chmod go-w rootfs/. disk.img:/
Copy from one image to another:
  throughline cp -a a.img:/home b.img:/
Copy a stream:
  curl -s https://example.org/data | throughline cp - disk.img:/data
Copy only newer files:
  throughline cp -au site/. disk.img:/var/www
[rm]
Remove all logs:
  throughline rm -f 'disk.img:/var/log/*.log'
[mkdir]
Make a directory and its parents:
  throughline mkdir -p disk.img:/srv/www/html
[mv]
Rename a file:
  throughline mv disk.img:/etc/motd disk.img:/etc/motd.old
[ln]
Make a relative symbolic link:
  throughline ln -sr disk.img:/usr/lib/libx.so.1 disk.img:/usr/lib/libx.so
[readlink]
Resolve a path:
  throughline readlink -f disk.img:/etc/localtime
[chmod]
Remove all access for group and others:
  throughline chmod -R go= disk.img:/root
[chown]
Give a directory and its contents to a user, by number:
  throughline chown -R 1000:1000 disk.img:/home/ann
[find]
Find set-user-ID programs:
  throughline find disk.img:/ -type f -perm -4000 -ls
Remove old logs:
  throughline find disk.img:/var/log -name '*.gz' -mtime +30 -delete
Print a table of sizes, and run a throughline command on large files:
  throughline find disk.img:/home -type f -printf '%s\t%p\n' -size +1G -exec chmod go-r {} +
[mknod]
Make the null device:
  throughline mknod -m 666 disk.img:/dev/null c 1 3
[getfattr]
Show all attributes with their values:
  throughline getfattr -d -m - disk.img:/bin/ping
[setfattr]
Set a user attribute:
  throughline setfattr -n user.origin -v build-42 disk.img:/etc/os-release
[getfacl]
Show an ACL:
  throughline getfacl disk.img:/srv
[setfacl]
Add a user, also for files created here later:
  throughline setfacl -m u:1000:rwX,d:u:1000:rwX disk.img:/srv
[lsattr]
Find immutable and append-only files:
  throughline lsattr -R disk.img:/etc | grep -e '----i' -e '-----a'
[chattr]
Make a file immutable:
  throughline chattr +i disk.img:/etc/resolv.conf
[label]
Set a label:
  throughline label disk.img root
[uuid]
Write a line for fstab:
  echo "UUID=$(throughline uuid disk.img) / ext4 defaults 0 1"
Set a new one, for a copy that is mounted together with its original:
  throughline uuid --set random copy.img
[touch]
Set the times of another file:
  throughline touch -r disk.img:/etc/passwd disk.img:/etc/passwd-
[truncate]
Make a file of zeros that uses no space:
  throughline truncate -s 100M disk.img:/swapfile
[shell]
Make many changes, with the image opened once:
  throughline shell disk.img <<'END'
  mkdir -p /etc/app
  cp host:app.conf /etc/app/
  chmod 640 /etc/app/*
  END
The same from a file, continuing after errors:
  throughline shell --keep-going disk.img -f changes
[df]
Show the free space of images:
  throughline df -hT *.img
[du]
Show what uses the space:
  throughline du -hc -d 1 disk.img:/
[tune]
Measure the read speed of an image, by I/O size:
  throughline tune --measure disk.img
[replay]
Replay the journal of a crashed machine's image:
  throughline replay disk.img
[mount]
Mount read-only, with access for all users:
  throughline mount -o ro,allow_other disk.img dir
List mounts:
  throughline mount
[umount]
Unmount, and wait until the image is closed:
  throughline umount dir
[status]
List all mounts:
  throughline status
Watch one, every second:
  throughline status --watch 1 dir
[install-fuse2fs]
Make programs of this user run throughline as fuse2fs:
  throughline install-fuse2fs ~/.local/bin
[install-helpers]
Enable mount(8) and fstab, as root:
  throughline install-helpers
[explain]
Show the disk I/O of a copy:
  throughline explain cp big disk.img:/
Show the I/O of any program, from the kernel's tracepoints, as root:
  throughline explain --kernel -- dd if=/dev/zero of=/mnt/f bs=4M count=10 oflag=direct
[lab]
List the experiments:
  throughline lab list
[completions]
Install completions for bash:
  throughline completions bash > ~/.local/share/bash-completion/completions/throughline
[man]
Install all pages for this user:
  throughline man ~/.local/share/man/man1
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_by_their_command() {
        assert_eq!(of("").len(), 3);
        assert_eq!(of("no-such"), []);
        let heads = EXAMPLES
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
        for (command, examples) in heads.map(|command| (command, of(command))) {
            let complete =
                |(purpose, lines): &(&str, String)| purpose.ends_with(':') && !lines.is_empty();
            assert!(
                !examples.is_empty() && examples.iter().all(complete),
                "{command}"
            );
        }
    }
}
